-- Rows of the job's SELECT as requests, checked.
WITH checked AS (
  SELECT *,
    CASE
      WHEN reason IS NOT NULL THEN reason
      WHEN row_number() OVER (
        PARTITION BY tenant_id, store_id, request_id, reason IS NULL ORDER BY asked_at NULLS LAST, question, split
      ) > 1 THEN concat('request_id ', request_id, ' occurs twice in the store')
    END AS problem
  FROM (
    SELECT
      coalesce(tenant_id, '') AS tenant_id, store_id, request_id, question, instant(asked_at, $zone) AS asked_at, split,
      CASE
        WHEN store_id IS NULL THEN 'store_id is missing'
        WHEN request_id IS NULL THEN 'request_id is missing'
        WHEN question IS NULL THEN 'question is missing'
        WHEN NOT regexp_like(question, '\S') THEN 'question is blank'
        WHEN asked_at IS NOT NULL AND instant(asked_at, $zone) IS NULL
          THEN concat('asked_at ', CAST(asked_at AS VARCHAR), ' cannot be read as a time')
      END AS reason
    FROM mapped
  )
)

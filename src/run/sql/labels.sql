-- Rows of the job's SELECT as labels, checked.
WITH checked AS (
  SELECT *,
    CASE
      WHEN reason IS NOT NULL THEN reason
      WHEN row_number() OVER (
        PARTITION BY tenant_id, store_id, request_id, turn_id, reason IS NULL ORDER BY relevance DESC
      ) > 1 THEN concat('turn ', turn_id, ' is labelled twice for request ', request_id)
    END AS problem
  FROM (
    SELECT
      coalesce(tenant_id, '') AS tenant_id, store_id, request_id, turn_id,
      TRY_CAST(relevance AS BIGINT) AS relevance,
      CASE
        WHEN store_id IS NULL THEN 'store_id is missing'
        WHEN request_id IS NULL THEN 'request_id is missing'
        WHEN turn_id IS NULL THEN 'turn_id is missing'
        WHEN relevance IS NULL THEN 'relevance is missing'
        WHEN relevance NOT BETWEEN -2147483648 AND 2147483647 THEN concat('relevance ', CAST(relevance AS VARCHAR), ' is out of range')
        WHEN relevance <> floor(relevance) THEN concat('relevance ', CAST(relevance AS VARCHAR), ' is no whole number')
        WHEN relevance < 0 THEN concat('relevance ', CAST(relevance AS VARCHAR), ' is below 0')
      END AS reason
    FROM mapped
  )
)

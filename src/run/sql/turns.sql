-- Rows of the job's first SELECT as turns: checked, numbered, hashed, with their store's fingerprint and shard.
WITH checked AS (
  SELECT *,
    CASE
      WHEN reason IS NOT NULL THEN reason
      WHEN row_number() OVER (
        PARTITION BY tenant_id, store_id, turn_id, reason IS NULL
        ORDER BY given_ordinal NULLS LAST, spoken_at NULLS LAST, given_position NULLS LAST, content, session_id, role,
          given_session, speaker, language, added_at
      ) > 1 THEN concat('turn_id ', turn_id, ' occurs twice in the store')
    END AS problem
  FROM (
    SELECT
      coalesce(tenant_id, '') AS tenant_id, store_id, coalesce(session_id, '') AS session_id, turn_id,
      TRY_CAST(turn_ordinal AS BIGINT) AS given_ordinal, TRY_CAST(session_ordinal AS BIGINT) AS given_session,
      TRY_CAST(position AS BIGINT) AS given_position,
      instant(spoken_at, $zone) AS spoken_at, instant(added_at, $zone) AS added_at,
      lower(role) AS role, speaker, content, language,
      CASE
        WHEN store_id IS NULL THEN 'store_id is missing'
        WHEN turn_id IS NULL THEN 'turn_id is missing'
        WHEN role IS NULL THEN 'role is missing'
        WHEN lower(role) NOT IN ('user', 'assistant', 'system', 'tool')
          THEN concat('role ', role, ' is none of user, assistant, system, tool')
        WHEN turn_ordinal NOT BETWEEN -2147483648 AND 2147483647 THEN concat('turn_ordinal ', CAST(turn_ordinal AS VARCHAR), ' is out of range')
        WHEN turn_ordinal <> floor(turn_ordinal) THEN concat('turn_ordinal ', CAST(turn_ordinal AS VARCHAR), ' is no whole number')
        WHEN session_ordinal NOT BETWEEN -2147483648 AND 2147483647 THEN concat('session_ordinal ', CAST(session_ordinal AS VARCHAR), ' is out of range')
        WHEN session_ordinal <> floor(session_ordinal) THEN concat('session_ordinal ', CAST(session_ordinal AS VARCHAR), ' is no whole number')
        WHEN position NOT BETWEEN -2147483648 AND 2147483647 THEN concat('position ', CAST(position AS VARCHAR), ' is out of range')
        WHEN position <> floor(position) THEN concat('position ', CAST(position AS VARCHAR), ' is no whole number')
        WHEN spoken_at IS NOT NULL AND instant(spoken_at, $zone) IS NULL
          THEN concat('spoken_at ', CAST(spoken_at AS VARCHAR), ' cannot be read as a time')
        WHEN added_at IS NOT NULL AND instant(added_at, $zone) IS NULL
          THEN concat('added_at ', CAST(added_at AS VARCHAR), ' cannot be read as a time')
      END AS reason
    FROM mapped
  )
)

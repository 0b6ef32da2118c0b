-- Recall, one store at a time: `recall` sees a store's turns (kind 0) and requests (kind 1), and gives each request's
-- pool. row_number() makes the engine sort by store, so that only one store is held in memory.
SELECT
  tenant_id, store_id,
  p['request_id'] AS request_id,
  p['turn_id'] AS turn_id,
  p['turn_ordinal'] AS turn_ordinal,
  p['reference_at'] AS reference_at,
  p['pool_position'] AS pool_position,
  p['rrf_score'] AS rrf_score,
  p['lists'] AS lists
FROM (
  SELECT tenant_id, store_id,
    unnest(recall(kind, ordinal, id, text, language, content_hash, vector, at, rn, $recall)) AS p
  FROM (
    SELECT *, row_number() OVER (PARTITION BY tenant_id, store_id ORDER BY kind, ordinal, id) AS rn
    FROM (
      SELECT
        t.tenant_id, t.store_id, arrow_cast(0, 'Int8') AS kind, t.turn_ordinal AS ordinal, t.turn_id AS id,
        t.content AS text, t.language, t.content_hash, e.vector, coalesce(t.spoken_at, t.session_at) AS at
      FROM (
        -- A turn without a time of its own is as old as its session.
        SELECT *, first_value(spoken_at) OVER (
          PARTITION BY tenant_id, store_id, session_id ORDER BY spoken_at NULLS LAST ROWS UNBOUNDED PRECEDING
        ) AS session_at
        FROM turns
      ) AS t
      LEFT JOIN embeddings AS e
        ON e.content_hash = t.content_hash AND e.purpose = 'passage' AND e.encoder_hash = $encoder_hash
      UNION ALL
      SELECT
        r.tenant_id, r.store_id, arrow_cast(1, 'Int8') AS kind, 0 AS ordinal, r.request_id AS id,
        r.question AS text, NULL AS language, r.question_hash AS content_hash, e.vector,
        coalesce(r.asked_at, $as_of, w.watermark) AS at
      FROM requests AS r
      LEFT JOIN embeddings AS e
        ON e.content_hash = r.question_hash AND e.purpose = 'query' AND e.encoder_hash = $encoder_hash
      LEFT JOIN (SELECT tenant_id, store_id, max(spoken_at) AS watermark FROM turns GROUP BY tenant_id, store_id) AS w
        ON w.tenant_id = r.tenant_id AND w.store_id = r.store_id
    )
  )
  GROUP BY tenant_id, store_id
)

-- The order in which a pool is filled. A turn that could not be scored comes last, and ties go to the earlier turn.
SELECT
  tenant_id, store_id, request_id, turn_id, turn_ordinal, score,
  CAST(row_number() OVER (
    PARTITION BY tenant_id, store_id, request_id ORDER BY score DESC NULLS LAST, turn_ordinal
  ) AS INT) AS rank
FROM (
  SELECT
    tenant_id, store_id, request_id, turn_id, turn_ordinal,
    rank_score(named_struct(
      'pool_position', pool_position,
      'bm25_score', bm25_score,
      'bm25_rank', bm25_rank,
      'dense_score', dense_score,
      'dense_rank', dense_rank,
      'ce_prob', ce_prob,
      'context_cosine', context_cosine,
      'role', role,
      'position', position,
      'age_days', age_days,
      'length_tokens', length_tokens
    )) AS score
  FROM features
)

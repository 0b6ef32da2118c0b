SELECT
  tenant_id, store_id, request_id, turn_id, CAST(relevance AS INT) AS relevance,
  fingerprint(request_id, turn_id, relevance) AS row_fingerprint,
  shard_of(tenant_id, store_id, $shards) AS shard
FROM checked WHERE problem IS NULL

SELECT
  tenant_id, store_id, request_id, turn_id, CAST(relevance AS INT) AS relevance,
  bit_xor(fingerprint(request_id, turn_id, relevance)) OVER (PARTITION BY tenant_id, store_id) AS store_fingerprint,
  shard_of(tenant_id, store_id, $shards) AS shard
FROM checked WHERE problem IS NULL

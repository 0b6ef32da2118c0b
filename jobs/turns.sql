-- The first SELECT: an input's columns as turns. It must give store_id, turn_id, role and content; a column that your
-- input lacks can be left out of the SELECT, and what can be counted (ordinals, position) is then counted from the times.
SELECT
  tenant_id, store_id, session_id, turn_id, turn_ordinal, session_ordinal, position,
  spoken_at, added_at, role, speaker, content, language
FROM input.turns

#!/usr/bin/env python3
"""Writes one small history in the many ways in which writers of Parquet write one.

Needs pyarrow 26, polars 2, duckdb 2, pandas 3 and fastparquet; the tests need only the files. Every file of turns/ holds
the rows of turns/plain.parquet, every file of sessions/ those of sessions/plain.parquet.
"""

import datetime as dt
import shutil
from pathlib import Path

import duckdb
import fastparquet
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
UTC = dt.timezone.utc
# store, session, turn, ordinal, session ordinal, position, time, role, speaker, content
ROWS = [
    ("a", "a-s0", "a-t0", 0, 0, 0, "2024-03-01T10:00:00", "user", "Ann", "the kettle is red"),
    ("a", "a-s0", "a-t1", 1, 0, 1, "2024-03-01T10:00:01", "assistant", None, "so it is"),
    ("a", "a-s0", "a-t2", 2, 0, 2, "2024-03-01T10:05:00", "tool", None, None),
    ("a", "a-s1", "a-t3", 3, 1, 0, "2024-03-02T23:59:59", "user", "Ann", "今天玩成语接龙游戏"),
    ("a", "a-s1", "a-t4", 4, 1, 1, "2024-03-03T00:00:01", "assistant", None, "naïve café, said twice"),
    ("b", "b-s0", "b-t0", 0, 0, 0, "2024-02-29T12:00:00", "user", "Bo", "naïve café, said twice"),
    ("b", "b-s0", "b-t1", 1, 0, 1, "2024-02-29T12:30:00", "system", None, ""),
]
NAMES = ["tenant_id", "store_id", "session_id", "turn_id", "turn_ordinal", "session_ordinal", "position", "spoken_at",
         "added_at", "role", "speaker", "content", "language"]
TEXTS = ["tenant_id", "store_id", "session_id", "turn_id", "role", "speaker", "content", "language"]
INTS = ["turn_ordinal", "session_ordinal", "position"]


def table(text=pa.string(), integer=pa.int32(), time=pa.timestamp("us", "UTC"), nothing=None, rows=ROWS):
    """The history as an Arrow table with these types; columns without a value as `nothing`, if given."""
    columns = {n: [] for n in NAMES}
    for row in rows:
        store, session, turn, ordinal, session_ordinal, position, at, role, speaker, content = row
        naive = dt.datetime.fromisoformat(at)
        at = naive if pa.types.is_timestamp(time) and time.tz is None else naive.replace(tzinfo=UTC)
        if not pa.types.is_timestamp(time):
            at = at.isoformat()
        for name, value in zip(NAMES, [None, store, session, turn, ordinal, session_ordinal, position, at, None, role,
                                       speaker, content, None]):
            columns[name].append(value)
    arrays = []
    for name in NAMES:
        kind = text if name in TEXTS else integer if name in INTS else time
        if nothing is not None and name in ("tenant_id", "added_at", "language"):
            kind = nothing
        base = pa.string() if pa.types.is_dictionary(kind) or pa.types.is_large_string(kind) or kind == pa.string_view() else kind
        array = pa.array(columns[name], base)
        arrays.append(array.dictionary_encode() if pa.types.is_dictionary(kind) else array.cast(kind))
    return pa.table(arrays, NAMES)


def write(name, t, **options):
    pq.write_table(t, HERE / "turns" / f"{name}.parquet", **{"compression": "zstd", **options})


def flat():
    write("plain", table())
    write("dictionary", table(text=pa.dictionary(pa.int32(), pa.string())))
    write("large_utf8", table(text=pa.large_string()))
    write("utf8_view", table(text=pa.string_view()))
    for unit in ("s", "ms", "us", "ns"):
        write(f"time_{unit}", table(time=pa.timestamp(unit)))
        write(f"time_{unit}_utc", table(time=pa.timestamp(unit, "UTC")))
        write(f"time_{unit}_tokyo", table(time=pa.timestamp(unit, "+09:00")))
    write("time_us_named_zone", table(time=pa.timestamp("us", "Asia/Tokyo")))
    write("time_text", table(time=pa.string()))
    write("time_int96", table(time=pa.timestamp("ns")), use_deprecated_int96_timestamps=True)
    for integer in (pa.int8(), pa.int16(), pa.int64(), pa.uint8(), pa.uint32(), pa.float32(), pa.float64()):
        write(f"ordinals_{integer}", table(integer=integer))
    write("null_columns", table(nothing=pa.null()))
    for codec in ("snappy", "gzip", "brotli", "lz4", "none"):
        write(f"codec_{codec}", table(), compression=codec)
    write("pages_v2", table(), data_page_version="2.0", compression="gzip")
    encodings = {n: "DELTA_BYTE_ARRAY" for n in TEXTS} | {n: "DELTA_BINARY_PACKED" for n in INTS}
    write("encodings_delta", table(), use_dictionary=False, data_page_version="2.0",
          column_encoding=encodings | {"spoken_at": "DELTA_BINARY_PACKED", "content": "DELTA_LENGTH_BYTE_ARRAY"})
    write("encodings_split", table(integer=pa.float64()), use_dictionary=False,
          column_encoding={n: "BYTE_STREAM_SPLIT" for n in INTS})
    write("more_columns", table().append_column("mood", pa.array(["calm"] * len(ROWS)))
          .append_column("scores", pa.array([[0.5, None]] * len(ROWS))))
    write("another_order", table().select(NAMES[::-1]))
    write("row_groups", table(), row_group_size=2)
    with pq.ParquetWriter(HERE / "turns" / "empty_row_group.parquet", table().schema) as out:
        out.write_table(table(rows=[]))
        out.write_table(table())
        out.write_table(table(rows=[]))
    write("without_statistics", table(), write_statistics=False, store_schema=False)


def other_writers():
    plain = table()
    pl.from_arrow(plain).write_parquet(HERE / "turns" / "polars.parquet")
    pl.from_arrow(plain).write_parquet(HERE / "turns" / "polars_statistics.parquet", compression="lz4", statistics="full")
    plain.to_pandas().to_parquet(HERE / "turns" / "pandas.parquet")
    frame = plain.to_pandas()
    frame["role"] = frame["role"].astype("category")
    frame.set_index("turn_id").to_parquet(HERE / "turns" / "pandas_index.parquet")
    for times in ("int64", "int96"):
        frame = plain.to_pandas()
        for name in ("tenant_id", "language"):
            frame[name] = frame[name].astype("object")
        # It takes any datetime for nanoseconds.
        for name in ("spoken_at", "added_at"):
            frame[name] = frame[name].astype("datetime64[ns, UTC]")
        fastparquet.write(str(HERE / "turns" / f"fastparquet_{times}.parquet"), frame, times=times, compression="GZIP",
                          object_encoding="utf8")
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.register("plain", plain)
    for version in ("V1", "V2"):
        file = HERE / "turns" / f"duckdb_{version.lower()}.parquet"
        database.execute(f"COPY plain TO '{file}' (FORMAT parquet, PARQUET_VERSION {version}, CODEC zstd)")
    database.execute(f"""COPY (SELECT * REPLACE (spoken_at::TIMESTAMP AS spoken_at, turn_ordinal::HUGEINT AS turn_ordinal,
        role::ENUM('user', 'assistant', 'tool', 'system') AS role) FROM plain)
        TO '{HERE / "turns" / "duckdb_types.parquet"}' (FORMAT parquet)""")


def folder():
    """A folder whose files have different schemas."""
    parts = HERE / "turns" / "folder.parquet"
    parts.mkdir()
    pq.write_table(table(rows=ROWS[:2], text=pa.large_string(), integer=pa.int64()), parts / "part-0.parquet")
    pq.write_table(table(rows=ROWS[2:4], text=pa.dictionary(pa.int32(), pa.string()), integer=pa.float64(),
                         time=pa.timestamp("ns", "+09:00")).append_column("mood", pa.array(["calm", "glad"])),
                   parts / "part-1.parquet")
    pq.write_table(table(rows=ROWS[4:5], time=pa.timestamp("ms"), nothing=pa.null()), parts / "part-2.parquet")
    pq.write_table(table(rows=ROWS[5:], time=pa.string(), integer=pa.int8()).select(NAMES[::-1])
                   .drop_columns(["tenant_id", "language"]), parts / "part-3.parquet")
    pq.write_table(table(rows=[]), parts / "part-4.parquet")


def sessions():
    """The same history with a session a row, its messages in a list."""
    groups = {}
    for store, session, _, _, _, _, at, role, _, content in ROWS:
        at = dt.datetime.fromisoformat(at).replace(tzinfo=UTC)
        groups.setdefault((store, session, ), []).append({"role": role, "content": content, "sent_at": at})
    def nested(make_list, text=pa.string(), time=pa.timestamp("us", "UTC")):
        message = pa.struct([("role", text), ("content", text), ("sent_at", time)])
        return pa.table({
            "user_id": pa.array([k[0] for k in groups], text),
            "conversation_id": pa.array([k[1] for k in groups], text),
            "started_at": pa.array([m[0]["sent_at"] for m in groups.values()], time),
            "messages": pa.array(list(groups.values()), pa.list_(message)).cast(make_list(message)),
        })
    out = HERE / "sessions"
    plain = nested(pa.list_)
    pq.write_table(plain, out / "plain.parquet", compression="zstd")
    pq.write_table(plain, out / "old_lists.parquet", use_compliant_nested_type=False)
    pq.write_table(nested(pa.large_list, pa.large_string()), out / "large_list.parquet")
    pq.write_table(nested(pa.list_, time=pa.timestamp("ns", "+09:00")), out / "nanoseconds.parquet")
    pl.from_arrow(plain).write_parquet(out / "polars.parquet")
    plain.to_pandas().to_parquet(out / "pandas.parquet")
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.register("plain", plain)
    database.execute(f"COPY plain TO '{out / 'duckdb.parquet'}' (FORMAT parquet)")
    # Every session with the same number of messages: a list of fixed size.
    two = plain.slice(1, 2)
    message = two.schema.field("messages").type.value_type
    pq.write_table(two, out / "two_plain.parquet")
    fixed = pa.FixedSizeListArray.from_arrays(two["messages"].combine_chunks().flatten(), 2)
    pq.write_table(two.set_column(3, "messages", fixed), out / "two_fixed_size.parquet")


for name in ("turns", "sessions"):
    shutil.rmtree(HERE / name, ignore_errors=True)
    (HERE / name).mkdir()
flat()
other_writers()
folder()
sessions()

# A text column whose second value is no UTF-8.
plain = table()
broken = pa.StringArray.from_buffers(7, pa.py_buffer(b"".join(i.to_bytes(4, "little") for i in (0, 4, 6, 10, 14, 18, 22, 26))),
                                     pa.py_buffer(b"fine\xff\xfe" + b"fine" * 5))
pq.write_table(plain.set_column(plain.schema.get_field_index("content"), "content", broken), HERE / "no_utf8.parquet")

-- SPDX-License-Identifier: BSD-3-Clause
-- Adds the flows of `nfdump -o json` on standard input to a table of DuckDB; see docs/fleet.md.
CREATE TABLE IF NOT EXISTS flows (
    began TIMESTAMP, ended TIMESTAMP, router VARCHAR, exporter INTEGER, protocol UTINYINT,
    source VARCHAR, source_port USMALLINT, destination VARCHAR, destination_port USMALLINT,
    direction UTINYINT, packets UBIGINT, bytes UBIGINT
);
-- The columns are named because a file without IPv6 has no fields of IPv6.
INSERT INTO flows
SELECT "first", "last", coalesce(ip4_router, ip6_router), export_sysid, proto,
    coalesce(src4_addr, src6_addr), src_port, coalesce(dst4_addr, dst6_addr), dst_port,
    direction, in_packets, in_bytes
FROM read_json('/dev/stdin', format = 'array', columns = {
    "first": 'TIMESTAMP', "last": 'TIMESTAMP', ip4_router: 'VARCHAR', ip6_router: 'VARCHAR',
    export_sysid: 'INTEGER', proto: 'UTINYINT', src4_addr: 'VARCHAR', src6_addr: 'VARCHAR',
    src_port: 'USMALLINT', dst4_addr: 'VARCHAR', dst6_addr: 'VARCHAR', dst_port: 'USMALLINT',
    direction: 'UTINYINT', in_packets: 'UBIGINT', in_bytes: 'UBIGINT'});

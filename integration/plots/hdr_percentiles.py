#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints the distribution of an interval log of HdrHistogram: lines of "1/(1-quantile) value".

hdr_percentiles.py LOG [TAG]: adds up the intervals with this tag, or those without a tag.
"""

import base64
import struct
import sys
import zlib

COMPRESSED_COOKIE = 0x1C849314
COOKIE = 0x1C849313
HEADER = struct.Struct(">IIIIQQd")


def numbers(payload):
    """ZigZag LEB128, of at most nine bytes each."""
    at = 0
    while at < len(payload):
        bits = shift = 0
        while True:
            byte = payload[at]
            at += 1
            if shift == 56:
                bits |= byte << shift
                break
            bits |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield (bits >> 1) ^ -(bits & 1)


def counts(text):
    """(value, count) of each bucket of a histogram in base64."""
    packed = base64.b64decode(text)
    cookie, size = struct.unpack_from(">II", packed)
    if cookie != COMPRESSED_COOKIE:
        raise ValueError("not a compressed histogram of version 2")
    plain = zlib.decompress(packed[8 : 8 + size])
    cookie, size, _, digits, _, _, _ = HEADER.unpack_from(plain)
    if cookie != COOKIE:
        raise ValueError("not a histogram of version 2")
    half = 1 << (2 * 10**digits - 1).bit_length() - 1
    index = 0
    for number in numbers(plain[HEADER.size : HEADER.size + size]):
        if number < 0:
            index -= number
            continue
        power = max(index // half - 1, 0)
        low = index if index < 2 * half else (index % half + half) << power
        if number > 0:
            yield low + (1 << power) - 1, number
        index += 1


def main():
    log, tag = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    total = {}
    with open(log, encoding="ascii") as lines:
        for line in lines:
            if line.startswith(("#", '"')):
                continue
            fields = line.rstrip("\n").split(",")
            has_tag = fields[0].startswith("Tag=")
            if (fields[0][len("Tag=") :] if has_tag else "") != tag:
                continue
            for value, count in counts(fields[-1]):
                total[value] = total.get(value, 0) + count
    everything = sum(total.values())
    if everything == 0:
        sys.exit(f"hdr_percentiles: {log}: no values")
    passed = 0
    for value in sorted(total):
        # From the share of smaller values up to that of values not larger.
        print(everything / (everything - passed), value)
        passed += total[value]
        if passed < everything:
            print(everything / (everything - passed), value)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws a terminal program as SVG: runs it on a terminal of its own, presses keys, and takes pictures.

    devtools/screenshot.py --after 30 --picture 1=docs/top.svg --picture 3=docs/top/pools.svg -- \
        target/release/pmdscope top

Needs python3-pexpect and python3-pyte. `make screenshot` runs it over the demo.
"""

import argparse
import html
import re
import sys
import time

import pexpect
import pyte
import pyte.graphics

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE, MARGIN = 8.4, 18, 14, 12
# The 16 colours of a dark terminal; pyte's names.
COLOURS = {
    "black": "#1c1f26", "red": "#ff6b6b", "green": "#7ee787", "brown": "#e3b341", "blue": "#79b8ff",
    "magenta": "#d2a8ff", "cyan": "#76e3ea", "white": "#d0d7de",
    "brightblack": "#8b949e", "brightred": "#ff8e8e", "brightgreen": "#a5f0ad", "brightbrown": "#f2cc60",
    "brightyellow": "#f2cc60", "brightblue": "#a5d6ff", "brightmagenta": "#e2c5ff",
    "brightcyan": "#b3f0ff", "brightwhite": "#ffffff",
}
EMPTY_BRAILLE = "\u2800"
FOREGROUND, BACKGROUND = "#d0d7de", "#0d1117"
# pyte reports numbered colours as hexadecimal values of its own palette; the first 16 are those
# above.
NUMBERED = dict(zip(pyte.graphics.FG_BG_256, [
    "black", "red", "green", "brown", "blue", "magenta", "cyan", "white", "brightblack", "brightred",
    "brightgreen", "brightbrown", "brightblue", "brightmagenta", "brightcyan", "brightwhite"]))


def picture(text):
    """Keys, with \\r and the like for those that are no letters, and a file."""
    keys, separator, path = text.partition("=")
    if not separator or not path:
        raise argparse.ArgumentTypeError("expected KEYS=FILE")
    return pressed(keys), path


def pressed(keys):
    return keys.encode().decode("unicode_escape")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="100x30", help="columns x rows [default: %(default)s]")
    parser.add_argument("--after", type=float, default=5, help="seconds to run before the first picture [default: 5]")
    parser.add_argument("--settle", type=float, default=3, help="seconds between keys and a picture [default: 3]")
    parser.add_argument("--picture", action="append", type=picture, required=True, metavar="KEYS=FILE",
                        help="press these keys, then write a picture; may be repeated")
    parser.add_argument("--quit", default="q", type=pressed, help="keys that end the program [default: %(default)s]")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="program and its arguments")
    args = parser.parse_args()
    if args.command[:1] == ["--"]:
        del args.command[0]
    if not args.command:
        parser.error("no command to run")
    return args


def read_for(child, stream, seconds):
    """Feeds what the program draws to the emulated terminal."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            stream.feed(child.read_nonblocking(65536, timeout=0.1).decode(errors="replace"))
        except pexpect.TIMEOUT:
            continue


def run(args):
    columns, rows = (int(part) for part in args.size.split("x"))
    screen = pyte.Screen(columns, rows)
    stream = pyte.Stream(screen)
    child = pexpect.spawn(args.command[0], args.command[1:], dimensions=(rows, columns),
                          env={"TERM": "xterm-256color", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})
    try:
        read_for(child, stream, args.after)
        for keys, path in args.picture:
            child.send(keys)
            read_for(child, stream, args.settle)
            lines = [[screen.buffer[row][column] for column in range(columns)] for row in range(rows)]
            with open(path, "w", encoding="utf-8") as out:
                out.write(draw(lines))
        child.send(args.quit)
        child.expect(pexpect.EOF, timeout=10)
    finally:
        child.close(force=True)


def colour(name, default):
    if name == "default":
        return default
    return COLOURS.get(NUMBERED.get(name, name)) or f"#{name}"


def look(char):
    front, back = colour(char.fg, FOREGROUND), colour(char.bg, BACKGROUND)
    return (back, front, char.bold) if char.reverse else (front, back, char.bold)


def runs(line):
    """Neighbouring cells that look alike: (column, text, look)."""
    start = 0
    for column in range(1, len(line) + 1):
        if column == len(line) or look(line[column]) != look(line[start]):
            yield start, "".join(char.data for char in line[start:column]), look(line[start])
            start = column


def parts(text):
    """What is placed on its own: (column, text). Signs come from other fonts, of other widths."""
    column = 0
    for part in re.findall(r"[\x00-\x7f]+|.", text):
        if part.strip(" " + EMPTY_BRAILLE):
            yield column, part
        column += len(part)


def draw(lines):
    width = len(lines[0]) * CELL_WIDTH + 2 * MARGIN
    height = len(lines) * CELL_HEIGHT + 2 * MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
           f'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="{FONT_SIZE}">',
           f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>']
    for row, line in enumerate(lines):
        top = MARGIN + row * CELL_HEIGHT
        for column, text, (front, back, bold) in runs(line):
            left, length = MARGIN + column * CELL_WIDTH, len(text) * CELL_WIDTH
            if back != BACKGROUND:
                out.append(f'<rect x="{left:.1f}" y="{top}" width="{length:.1f}" height="{CELL_HEIGHT}" fill="{back}"/>')
            weight = ' font-weight="bold"' if bold else ""
            for offset, part in parts(text):
                length = f' textLength="{len(part) * CELL_WIDTH:.1f}"' if len(part) > 1 else ""
                out.append(f'<text x="{left + offset * CELL_WIDTH:.1f}" y="{top + 13}" fill="{front}"{weight}{length} '
                           f'xml:space="preserve">{html.escape(part)}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    run(arguments())
    return 0


if __name__ == "__main__":
    sys.exit(main())

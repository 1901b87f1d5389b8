# SPDX-License-Identifier: BSD-3-Clause
"""As much of PromQL as rules and panels use: a parser, and the labels that a result has.

promtool checks the syntax; this is for what it cannot check, because it knows no dashboards."""

import re
from dataclasses import dataclass, field
from functools import cache

AGGREGATIONS = {"sum", "min", "max", "avg", "count", "topk", "bottomk", "quantile", "group",
                "stddev", "stdvar", "count_values"}
PRECEDENCE = {"or": 1, "and": 2, "unless": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3,
              "+": 4, "-": 4, "*": 5, "/": 5, "%": 5, "^": 6}
TOKEN = re.compile(r"""
    \s*(?:(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<duration>\$__\w+|\d+(?:ms|[smhdwy])(?:\d+(?:ms|[smhdwy]))*)
    |(?P<number>\d+\.?\d*(?:e[+-]?\d+)?)
    |(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    |(?P<op>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){}\[\],:@]))""", re.VERBOSE)


class ParseError(ValueError):
    """The expression is not one that this parser knows."""


@dataclass
class Selector:
    """Series by name and matchers, perhaps over a window."""
    name: str
    matchers: list
    window: str = ""
    offset: str = ""
    at: str = ""


@dataclass
class Call:
    """A function, also unary minus and literals."""
    function: str
    arguments: list


@dataclass
class Aggregation:
    """An aggregation; `labels` are kept (by) or dropped (without); None keeps none."""
    operator: str
    arguments: list
    labels: list = None
    without: bool = False


@dataclass
class Binary:
    """Two sides; `on` and `ignoring` are None without such a clause."""
    operator: str
    left: object
    right: object
    on: list = None
    ignoring: list = None
    many: str = ""
    include: list = field(default_factory=list)


class Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text):
        self.text, self.tokens, at = text, [], 0
        while text[at:].strip():
            found = TOKEN.match(text, at)
            if not found:
                raise ParseError(f"unexpected {text[at:at + 20]!r} in {text!r}")
            self.tokens.append((found.lastgroup, found.group(found.lastgroup)))
            at = found.end()
        self.at = 0

    def peek(self):
        """The next token's text."""
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, wanted=None, kind=None):
        """The next token's text, which must be `wanted`, or of `kind`."""
        if self.at >= len(self.tokens):
            raise ParseError(f"{self.text!r} ends too early")
        have, text = self.tokens[self.at]
        if wanted not in (None, text) or kind not in (None, have):
            raise ParseError(f"expected {wanted or kind}, found {text!r} in {self.text!r}")
        self.at += 1
        return text

    def whole(self):
        """The whole text as one expression."""
        node = self.expression(0)
        if self.peek():
            raise ParseError(f"left over: {self.peek()!r} in {self.text!r}")
        return node

    def expression(self, least):
        """Binary operators that bind at least so tightly."""
        left = self.unary()
        while PRECEDENCE.get(self.peek(), 0) > least:
            operator = self.take()
            node = Binary(operator, left, None)
            if self.peek() == "bool":
                self.take()
            if self.peek() in ("on", "ignoring"):
                setattr(node, self.take(), self.names())
            if self.peek() in ("group_left", "group_right"):
                node.many = self.take().removeprefix("group_")
                node.include = self.names() if self.peek() == "(" else []
            node.right = self.expression(PRECEDENCE[operator])
            left = node
        return left

    def unary(self):
        """One operand, with its sign, window, offset and time."""
        if self.peek() in ("-", "+"):
            return Call(self.take(), [self.unary()])
        node = self.operand()
        while self.peek() in ("[", "offset", "@"):
            sign = self.take()
            if sign == "offset":
                node.offset = self.take(kind="duration")
                continue
            if sign == "@":
                node.at = self.take(kind="name")
                self.arguments()
                continue
            node.window = self.take(kind="duration")
            self.take("]")
        return node

    def operand(self):
        """A literal, a parenthesis, a selector, a call or an aggregation."""
        kind = self.tokens[self.at][0] if self.peek() else ""
        if self.peek() == "(":
            self.take()
            node = self.expression(0)
            self.take(")")
            return node
        if kind in ("number", "string", "duration"):
            return Call("literal", [self.take()])
        if self.peek() == "{":
            return Selector("", self.matchers())
        name = self.take(kind="name")
        if name in AGGREGATIONS:
            return self.aggregation(name)
        if self.peek() == "(":
            return Call(name, self.arguments())
        return Selector(name, self.matchers() if self.peek() == "{" else [])

    def aggregation(self, operator):
        """With its clause before or after the arguments."""
        node = Aggregation(operator, [])
        for _ in range(2):
            if self.peek() in ("by", "without"):
                node.without = self.take() == "without"
                node.labels = self.names()
            if self.peek() == "(" and not node.arguments:
                node.arguments = self.arguments()
        return node

    def arguments(self):
        """Expressions in parentheses."""
        self.take("(")
        made = []
        while self.peek() != ")":
            made.append(self.expression(0))
            if self.peek() != ")":
                self.take(",")
        self.take(")")
        return made

    def names(self):
        """Labels in parentheses."""
        self.take("(")
        made = []
        while self.peek() != ")":
            made.append(self.take(kind="name"))
            if self.peek() != ")":
                self.take(",")
        self.take(")")
        return made

    def matchers(self):
        """(label, operator, value) in braces."""
        self.take("{")
        made = []
        while self.peek() != "}":
            label, operator = self.take(kind="name"), self.take(kind="op")
            made.append((label, operator, self.take(kind="string")[1:-1]))
            if self.peek() != "}":
                self.take(",")
        self.take("}")
        return made


@cache
def parse(text):
    """The tree of an expression, which nobody changes."""
    return Parser(text).whole()


def children(node):
    """The expressions below a node."""
    if isinstance(node, Binary):
        return [node.left, node.right]
    if isinstance(node, (Call, Aggregation)):
        return [child for child in node.arguments if not isinstance(child, str)]
    return []


def walk(node, parent=None):
    """Every node with its parent."""
    yield node, parent
    for child in children(node):
        yield from walk(child, node)


def selectors(node):
    """All selectors of an expression, each with its parent."""
    return [(found, parent) for found, parent in walk(node) if isinstance(found, Selector)]


def labels(node, of_metric):
    """Labels of the series that an expression gives; `of_metric` tells those of a metric. None: it
    gives a scalar."""
    if isinstance(node, Selector):
        return set(of_metric(node.name))
    if isinstance(node, Aggregation):
        inner = labels(node.arguments[-1], of_metric)
        if node.operator in ("topk", "bottomk"):
            return inner
        if node.without:
            return inner - set(node.labels)
        return inner & set(node.labels or [])
    if isinstance(node, Call):
        if node.function == "absent":
            return {label for label, operator, _ in node.arguments[0].matchers if operator == "="}
        vectors = [labels(argument, of_metric) for argument in children(node)]
        known = next((found for found in vectors if found is not None), None)
        if known is not None and node.function == "histogram_quantile":
            return known - {"le"}
        if known is not None and node.function == "label_replace":
            return known | {node.arguments[1].arguments[0].strip("\"'")}
        return known if node.function != "vector" else set()
    left, right = labels(node.left, of_metric), labels(node.right, of_metric)
    if left is None or right is None:
        return right if left is None else left
    if node.operator in ("and", "or", "unless"):
        return left
    if node.many:
        return (left if node.many == "left" else right) | set(node.include)
    if node.on is not None:
        return set(node.on)
    return left - set(node.ignoring or [])

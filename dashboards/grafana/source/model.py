# SPDX-License-Identifier: BSD-3-Clause
"""Panels and dashboards as Grafana's JSON (schema version 39, which 40 to 42 read unchanged)."""

import re

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
RUNBOOKS = "https://github.com/pmdscope/pmdscope/blob/main/docs/runbooks.md"
MATCHERS = 'job=~"$job", instance=~"$instance"'
GREEN, YELLOW, ORANGE, RED, BLUE = "green", "yellow", "orange", "red", "blue"
GREY = "#808080"
UNKNOWN = "–"

# Variables of a dashboard, in order: the series to ask, and what the choice depends on.
VARIABLES = {
    "job": ("dpdk_exporter_build_info", ()),
    "instance": ("dpdk_exporter_build_info", ("job",)),
    "app": ("dpdk_up", ("job", "instance")),
    "port": ("dpdk_port_info", ("job", "instance", "app")),
    "queue": ("dpdk_queue_receive_packets_total", ("job", "instance", "app", "port")),
    "pool": ("dpdk_mempool_objects", ("job", "instance", "app")),
    "lcore": ("dpdk_lcore_info", ("job", "instance", "app")),
    "session": ("dpdk_capture_ring_bytes", ("job", "instance", "app")),
}


def expand(expr):
    """Writes out `{@}`, any instance; `{@app}`, any chosen app; `{@port}`, any chosen port of one,
    and so on; `by (@port)`, per port of an app of an instance; `[@]`, the window of rates."""

    def labels(text):
        names = [name for name in text.split("+") if name]
        return names if names[:1] in ([], ["app"]) else ["app", *names]

    def matchers(found):
        chosen = [f'{name}=~"${name}"' for name in labels(found.group(1))]
        return "{" + ", ".join([MATCHERS, *chosen]) + (found.group(2) or "") + "}"

    expr = re.sub(r"\{@([a-z+]*)(, [^}]*)?\}", matchers, " ".join(expr.split()))
    expr = re.sub(r"by \(@([a-z+]+)\)",
                  lambda found: f"by ({', '.join(['instance', *labels(found.group(1))])})", expr)
    return expr.replace("[@]", "[$__rate_interval]")


def packets(counter, labels="app"):
    """Rate of a counter of ports, for sums over ports: a bonding or failsafe port counts the packets
    of its members as well, so these are left out where it is chosen."""
    chosen = ', of=~"$port"' if labels == "port" else ""
    return (f"rate(dpdk_port_{counter}_packets_total{{@{labels}}}[@]) "
            f"unless on (job, instance, app, port) dpdk_port_member{{@app{chosen}}}")


def above(*steps):
    """Thresholds: green below the first step; each step is (value, colour)."""
    return {"mode": "absolute", "steps": [{"color": GREEN, "value": None}, *(
        {"color": colour, "value": value} for value, colour in steps)]}


def below(good, *steps):
    """Thresholds where less is worse: the colour from the bottom up, green from `good` on."""
    low, *rest = steps
    return {"mode": "absolute", "steps": [{"color": low[1], "value": None}, *(
        {"color": colour, "value": value} for value, colour in rest),
        {"color": GREEN, "value": good}]}


CLOSED = "closed"
PLAIN = {"mode": "absolute", "steps": [{"color": BLUE, "value": None}]}


def words(**values):
    """Value mappings: `_1="yes"` shows yes for 1; a pair adds a colour."""
    options = {}
    for index, (value, shown) in enumerate(values.items()):
        text, colour = shown if isinstance(shown, tuple) else (shown, None)
        options[value.lstrip("_")] = {"index": index, "text": text} | (
            {"color": colour} if colour else {})
    return [{"type": "value", "options": options}]


UP_DOWN = words(_0=("down", RED), _1=("up", GREEN))


def unknown(text, index=0):
    """Mapping for what has no value: without one, it has the colour of the lowest threshold."""
    return {"type": "special", "options": {"match": "null+nan", "result": {
        "index": index, "text": text, "color": GREY}}}


def between(low, high, text, colour):
    """Mapping of a range of values."""
    return {"type": "range", "options": {"from": low, "to": high, "result": {
        "index": 0, "text": text, "color": colour}}}


def first_empty(of):
    """Seconds until the first pool is empty: 0 from 98 % in use, when nothing drains any more;
    1e12, which NONE_DRAINS shows, if the use of pools is known; no value if it is not."""
    used = f"dpdk_mempool_objects_in_use{{@{of}}} / dpdk_mempool_objects{{@{of}}}"
    return (f"min(({used} >= 0.98) * 0 or dpdk_mempool_exhausted_in_seconds{{@{of}}} "
            f"or dpdk_mempool_objects_in_use{{@{of}}} * 0 + 1e12)")


NONE_DRAINS = between(1e9, 1e18, "none drains", GREEN)


def drill(title, uid):
    """Link to another dashboard, at the same time and with the same choice."""
    return {"title": title, "url": f"/d/{uid}?${{__all_variables}}&${{__url_time_range}}",
            "targetBlank": False}


def runbook(alert):
    """Link to what an alert means."""
    return {"title": f"Runbook: {alert}", "url": f"{RUNBOOKS}#{alert.lower()}", "targetBlank": True}


def query(expr, legend="", **more):
    """One target; `legend` names labels that its series have. Apps of many hosts share a name, so
    that an app is shown with its instance."""
    legend = legend.replace("{{app}}", "{{app}}@{{instance}}")
    return {"expr": expand(expr), "legendFormat": legend, **more}


def panel(kind, title, why, targets, unit, *, size, thresholds=PLAIN, mappings=(), links=(),
          decimals=None, empty=None, low=None, high=None, custom=None, overrides=(), options=None,
          transformations=(), colour=None):
    """A panel; `empty` is shown without data, and says what that means. Links are those of each
    value, but of a table's head: its cells have their own."""
    of_cells = kind == "table"
    defaults = {"unit": unit, "thresholds": thresholds, "mappings": list(mappings),
                "links": [] if of_cells else list(links), "color": colour or {"mode": "thresholds"}}
    optional = {"decimals": decimals, "noValue": empty, "min": low, "max": high, "custom": custom}
    defaults |= {name: value for name, value in optional.items() if value is not None}
    panel = {"type": kind, "title": title, "description": why, "datasource": DATASOURCE,
             "targets": [{"refId": chr(ord("A") + index), "datasource": DATASOURCE,
                          "editorMode": "code", "range": True, **target}
                         for index, target in enumerate(targets)],
             "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
             "options": options or {}, "size": size}
    if of_cells:
        panel["links"] = list(links)
    if transformations:
        panel["transformations"] = list(transformations)
    return panel


def stat(title, why, expr, unit="short", *, empty, mappings=(), size=(4, 4), **more):
    """One number, coloured by its thresholds; grey without data."""
    options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
               "orientation": "auto", "textMode": "auto", "colorMode": "background",
               "graphMode": "none", "justifyMode": "auto", "wideLayout": True,
               "showPercentChange": False}
    target = query(expr, instant=True, range=False)
    return panel("stat", title, why, [target], unit, size=size, options=options, empty=empty,
                 mappings=[*mappings, unknown(empty, len(mappings))], **more)


def of_target(ref, **properties):
    """How the series of one target of a graph are drawn: `custom_x` is the property custom.x."""
    return {"matcher": {"id": "byFrameRefID", "options": ref}, "properties": [
        {"id": key.replace("custom_", "custom."), "value": value}
        for key, value in properties.items()]}


# `empty` is the text of a panel without data. A table cell without a value, and the last value in
# the legend of a series that has ended, are shown as unknown.
WITHOUT_VALUE = {kind: {"matcher": {"id": "byType", "options": kind},
                        "properties": [{"id": "noValue", "value": UNKNOWN}]}
                 for kind in ("number", "string")}

# Units in which 1 is a small value: if all values are 0, the axis goes from 0 to 1, not from 0 to
# 100.
COUNTED = {"none", "short", "pps", "ops", "bps", "bytes"}


def series(title, why, targets, unit="short", *, size=(12, 8), stack=False, line=None, low=0,
           mirror=None, **more):
    """Lines over time; with `line`, thresholds are drawn too. The target `mirror` is drawn
    downwards: its values stay positive in legend and tooltip."""
    custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 60 if stack else 10,
              "showPoints": "never", "spanNulls": False,
              "stacking": {"mode": "normal" if stack else "none", "group": "A"},
              "thresholdsStyle": {"mode": "line" if line else "off"}}
    if unit in COUNTED or unit.startswith("count:"):
        custom["axisSoftMax"] = 1
    # The last value, not the last non-null value: a series that has ended has no current value.
    options = {"legend": {"showLegend": True, "displayMode": "table", "placement": "bottom",
                          "calcs": ["last", "max"], "sortBy": "Max", "sortDesc": True},
               "tooltip": {"mode": "multi", "sort": "desc"}}
    overrides = [WITHOUT_VALUE["number"], *more.pop("overrides", ())]
    if mirror:
        overrides.append(of_target(mirror, custom_transform="negative-Y"))
    return panel("timeseries", title, why, [query(*target) for target in targets], unit, size=size,
                 options=options, custom=custom, low=None if mirror else low, overrides=overrides,
                 thresholds=line or PLAIN, colour={"mode": "palette-classic"}, **more)


def ranked(rank, *targets):
    """Targets of one graph, of the same series: those of `rank`. If each target had the ten highest
    of its own, a mirrored graph would show what one port receives and what another one sends."""
    return [(f"{expr} and {rank}", legend) for expr, legend in targets]


def summed(*targets):
    """Targets of one graph, of the ten series with the highest sum of all targets."""
    return ranked(f"topk(10, {' + '.join(expr for expr, _ in targets)})", *targets)


def bands(metric, selector, edges):
    """Of a histogram, the decimal logarithm of the number of observations between each two edges,
    plus 1: Grafana has no logarithmic colours, and one bucket can have a million times more than
    the next. What lies below the first edge is left out. Dots are those of le="1.0", as OpenMetrics
    spells it."""
    def up_to(edge):
        spelled = f'le="{edge}"' if edge == "+Inf" or "." in edge or "e" in edge \
            else f'le=~"{edge}|{edge}.0"'
        return f"sum(increase({metric}_bucket{{@{selector}, {spelled}}}[@]))"

    def band(low, high):
        return (f"label_replace(log10(clamp_min({up_to(high)} - {up_to(low)}, 0) + 1), "
                f'"le", "{high}", "", "")')

    return " or ".join(map(band, edges, edges[1:]))


def heatmap(title, why, expr, unit, *, size=(24, 9), **more):
    """Bands of a histogram over time."""
    options = {"calculate": False, "cellGap": 1, "showValue": "never",
               "color": {"mode": "scheme", "scheme": "Oranges", "scale": "exponential",
                         "exponent": 0.5, "steps": 64, "reverse": False, "fill": "dark-orange"},
               "cellValues": {"unit": "prefix:10^", "decimals": 1},
               "filterValues": {"le": 1e-9}, "rowsFrame": {"layout": "le"},
               "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
               "legend": {"show": True}, "exemplars": {"color": "rgba(255,0,255,0.7)"},
               "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": True}}
    target = query(expr, "{{le}}", format="time_series")
    return panel("heatmap", title, why, [target], unit, size=size, options=options, **more)


def bars(title, why, expr, unit, *, legend, size=(12, 8), **more):
    """One bar per series, now."""
    options = {"displayMode": "gradient", "orientation": "horizontal", "showUnfilled": True,
               "valueMode": "color", "minVizWidth": 8, "minVizHeight": 16, "sizing": "auto",
               "namePlacement": "auto", "maxVizHeight": 300,
               "text": {"titleSize": 14, "valueSize": 14},
               "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
               "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom",
                          "calcs": []}}
    target = query(expr, legend, instant=True, range=False)
    return panel("bargauge", title, why, [target], unit, size=size, options=options, **more)


def states(title, why, expr, *, legend, mappings, size=(24, 7), **more):
    """What was the case when. With colours by threshold, `mergeValues` would merge by thresholds
    and ignore the mappings."""
    options = {"mergeValues": True, "showValue": "never", "alignValue": "left", "rowHeight": 0.8,
               "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom"},
               "tooltip": {"mode": "single", "sort": "none"}}
    custom = {"fillOpacity": 80, "lineWidth": 0, "spanNulls": False}
    return panel("state-timeline", title, why, [query(expr, legend)], "short", size=size,
                 options=options, custom=custom, mappings=mappings,
                 colour={"mode": "fixed", "fixedColor": GREY}, **more)


def column(name, unit=None, *, thresholds=None, mappings=None, links=None, decimals=None,
           width=None):
    """How one column of a table is shown. A cell without a value is grey."""
    if thresholds or mappings:
        mappings = [*(mappings or ()), unknown(UNKNOWN, 9)]
    properties = {"unit": unit, "thresholds": thresholds, "mappings": mappings, "links": links,
                  "decimals": decimals, "custom.width": width}
    if thresholds or mappings:
        properties["custom.cellOptions"] = {"type": "color-text"}
    return {"matcher": {"id": "byName", "options": name},
            "properties": [{"id": key, "value": value} for key, value in properties.items()
                           if value is not None]}


def table(title, why, targets, *, columns, hide=(), first=(), sort=(), size=(24, 8), **more):
    """Series as rows. `targets` pairs a column's name with its expression; labels come first, in
    the order of `first`. `sort` names columns, with a minus for the largest first. Labels are text:
    as numbers, a thread 14932 would be 14.9 K."""
    queries = [query(expr, format="table", instant=True, range=False) for _, expr in targets]
    values = ["Value"] if len(targets) == 1 else [
        f"Value #{chr(ord('A') + index)}" for index in range(len(targets))]
    named = {value: name for value, (name, _) in zip(values, targets)}
    hidden = {name: True for name in ("Time", "__name__", "job", *hide)}
    hidden |= {value: True for value, name in named.items() if not name}
    transformations = [{"id": "merge", "options": {}}] if len(targets) > 1 else []
    transformations.append({"id": "organize", "options": {
        "excludeByName": hidden, "indexByName": {name: index for index, name in enumerate(first)},
        "renameByName": {value: name for value, name in named.items() if name}}})
    options = {"showHeader": True, "cellHeight": "sm", "footer": {
        "show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
        "sortBy": [{"displayName": name.lstrip("-"), "desc": name.startswith("-")}
                   for name in sort]}
    # Without it a column takes at least 150 pixels, and columns that do not fit are hidden.
    custom = {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False,
              "filterable": True, "minWidth": 60}
    styled = {entry["matcher"]["options"] for entry in columns}
    numbers = [column(name, "short") for name, _ in targets if name and name not in styled]
    for entry in columns:
        if entry["matcher"]["options"] in named.values() and not any(
                one["id"] == "unit" for one in entry["properties"]):
            entry["properties"].append({"id": "unit", "value": "short"})
    return panel("table", title, why, queries, "string", size=size, custom=custom, options=options,
                 overrides=[*WITHOUT_VALUE.values(), *numbers, *columns],
                 transformations=transformations, **more)


def placed(rows):
    """Panels of rows with ids and places: left to right, then down. A row is a title, panels, and
    perhaps CLOSED: the panels of such a row are not queried until it is opened."""
    made, y = [], 0
    for number, (title, panels, *closed) in enumerate(rows, start=1):
        row = {"id": 100 * number, "type": "row", "title": title, "collapsed": bool(closed),
               "panels": [], "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}}
        made.append(row)
        x, y, height = 0, y + 1, 0
        below_row, inside = y, row["panels"] if closed else made
        for index, entry in enumerate(panels, start=1):
            width, tall = entry["size"]
            if x + width > 24:
                x, y, height = 0, y + height, 0
            inside.append({"id": 100 * number + index,
                           **{key: value for key, value in entry.items() if key != "size"},
                           "gridPos": {"x": x, "y": y, "w": width, "h": tall}})
            x, height = x + width, max(height, tall)
        y = below_row if closed else y + height
    return made


def variable(name):
    """A choice of values of a label, several or all."""
    metric, depends = VARIABLES[name]
    matchers = ", ".join(f'{other}=~"${other}"' for other in depends)
    text = f"label_values({metric}{'{' + matchers + '}' if matchers else ''}, {name})"
    return {"name": name, "label": name.capitalize(), "type": "query", "datasource": DATASOURCE,
            "query": {"query": text, "refId": f"variable-{name}"}, "definition": text,
            "multi": True, "includeAll": True, "allValue": ".+", "refresh": 2,
            "sort": 3 if name in ("queue", "lcore", "session") else 1, "regex": "", "hide": 0,
            "skipUrlSync": False, "options": [],
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}


def datasource():
    """The choice of the Prometheus to ask."""
    return {"name": "datasource", "label": "Data source", "type": "datasource",
            "query": "prometheus", "multi": False, "includeAll": False, "refresh": 1, "regex": "",
            "hide": 0, "skipUrlSync": False, "options": [],
            "current": {"text": "default", "value": "default"}}


def annotation(name, colour, expr, title, text):
    """Marks on all graphs where an expression has a series. It should have one for a single step: a
    mark over many steps is drawn as a region that covers the graphs."""
    return {"name": name, "enable": True, "hide": True, "iconColor": colour,
            "datasource": DATASOURCE, "expr": expand(expr), "titleFormat": title,
            "textFormat": text, "tagKeys": "app,instance", "step": "", "useValueForTime": False}


# Alerts of these rules; alerts without an app are those of its host.
ALERTS = 'ALERTS{@, app=~"$app|", alertname=~"Dpdk.+", alertstate="firing"%s}'


ANNOTATIONS = [
    {"builtIn": 1, "name": "Annotations & Alerts", "type": "dashboard", "enable": True,
     "hide": True, "iconColor": "rgba(0, 211, 255, 1)",
     "datasource": {"type": "grafana", "uid": "-- Grafana --"}},
    annotation("Restarts", BLUE, "dpdk_app_start_since_boot_seconds{@app} != "
               "dpdk_app_start_since_boot_seconds{@app} offset $__interval",
               "{{app}} restarted", "on {{instance}}; its counters began anew"),
    annotation("Leaks", RED, "dpdk_mbuf_leaked{@app} > 0 unless "
               "dpdk_mbuf_leaked{@app} offset $__interval > 0",
               "{{app}} loses mbufs", "of pool {{pool}} on {{instance}}"),
    annotation("Alerts", ORANGE, ALERTS % ', severity="critical"' + " unless "
               + ALERTS % ', severity="critical"' + " offset $__interval",
               "{{alertname}}", "{{severity}}: {{app}} on {{instance}}"),
    annotation("Captures", "purple", "dpdk_capture_sessions{@app} > "
               "dpdk_capture_sessions{@app} offset $__interval",
               "capture of {{app}} started", "on {{instance}}; it costs cycles per packet"),
]


def dashboard(uid, title, why, variables, rows):
    """A whole dashboard."""
    names = ["job", "instance", "app", *variables]
    return {
        "uid": uid, "title": title, "description": why, "tags": ["dpdk", "pmdscope"],
        "schemaVersion": 39, "version": 1, "editable": False, "graphTooltip": 1,
        "refresh": "10s", "time": {"from": "now-30m", "to": "now"}, "timezone": "browser",
        "timepicker": {"refresh_intervals": ["5s", "10s", "30s", "1m", "5m", "15m"]},
        "fiscalYearStartMonth": 0, "liveNow": False, "weekStart": "",
        "annotations": {"list": ANNOTATIONS},
        "links": [
            {"type": "dashboards", "title": "DPDK", "tags": ["dpdk"], "asDropdown": True,
             "includeVars": True, "keepTime": True, "targetBlank": False, "url": "",
             "icon": "external link", "tooltip": "The other dashboards, same choice, same time"},
            {"type": "link", "title": "Runbooks", "tags": [], "asDropdown": False,
             "includeVars": False, "keepTime": False, "targetBlank": True, "url": RUNBOOKS,
             "icon": "doc", "tooltip": "What each alert means and what to do"}],
        "templating": {"list": [datasource(), *map(variable, names)]},
        "panels": placed(rows)}

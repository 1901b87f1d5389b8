# SPDX-License-Identifier: BSD-3-Clause
"""Panels and dashboards as Grafana's JSON (schema version 39, which 40 to 42 read unchanged)."""

import re

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
RUNBOOKS = "https://github.com/pmdscope/pmdscope/blob/main/docs/runbooks.md"
MATCHERS = 'job=~"$job", instance=~"$instance"'
GREEN, YELLOW, ORANGE, RED, BLUE = "green", "yellow", "orange", "red", "blue"
GREY = "#808080"

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
YES_NO = words(_0="no", _1="yes")


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
          transformations=()):
    """A panel; `empty` is shown without data, and says what that means."""
    defaults = {"unit": unit, "thresholds": thresholds, "mappings": list(mappings),
                "links": list(links), "color": {"mode": "thresholds"}}
    optional = {"decimals": decimals, "noValue": empty, "min": low, "max": high, "custom": custom}
    defaults |= {name: value for name, value in optional.items() if value is not None}
    panel = {"type": kind, "title": title, "description": why, "datasource": DATASOURCE,
             "targets": [{"refId": chr(ord("A") + index), "datasource": DATASOURCE,
                          "editorMode": "code", "range": True, **target}
                         for index, target in enumerate(targets)],
             "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
             "options": options or {}, "size": size}
    if transformations:
        panel["transformations"] = list(transformations)
    return panel


def stat(title, why, expr, unit="short", *, empty, well=False, mappings=(), size=(4, 4), **more):
    """One number, coloured by its thresholds. Without data Grafana would take the colour of the
    lowest: it is grey instead, or green where no data means that all is `well`."""
    nothing = {"type": "special", "options": {"match": "null+nan", "result": {
        "index": len(mappings), "text": empty, "color": GREEN if well else GREY}}}
    options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
               "orientation": "auto", "textMode": "auto", "colorMode": "background",
               "graphMode": "none", "justifyMode": "auto", "wideLayout": True,
               "showPercentChange": False}
    target = query(expr, instant=True, range=False)
    return panel("stat", title, why, [target], unit, size=size, options=options, empty=empty,
                 mappings=[*mappings, nothing], **more)


def series(title, why, targets, unit="short", *, size=(12, 8), stack=False, line=None, low=0,
           **more):
    """Lines over time; with `line`, thresholds are drawn too."""
    custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 60 if stack else 10,
              "showPoints": "never", "spanNulls": False,
              "stacking": {"mode": "normal" if stack else "none", "group": "A"},
              "thresholdsStyle": {"mode": "line" if line else "off"}}
    options = {"legend": {"showLegend": True, "displayMode": "table", "placement": "bottom",
                          "calcs": ["lastNotNull", "max"]},
               "tooltip": {"mode": "multi", "sort": "desc"}}
    made = panel("timeseries", title, why, [query(*target) for target in targets], unit, size=size,
                 options=options, custom=custom, low=low, thresholds=line or PLAIN, **more)
    made["fieldConfig"]["defaults"]["color"] = {"mode": "palette-classic"}
    return made


def heatmap(title, why, expr, unit, *, size=(24, 9), **more):
    """Buckets of a histogram over time."""
    options = {"calculate": False, "cellGap": 1, "showValue": "never",
               "color": {"mode": "scheme", "scheme": "Oranges", "scale": "exponential",
                         "exponent": 0.5, "steps": 64, "reverse": False, "fill": "dark-orange"},
               "filterValues": {"le": 1e-9}, "rowsFrame": {"layout": "auto"},
               "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
               "legend": {"show": True}, "exemplars": {"color": "rgba(255,0,255,0.7)"},
               "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": True}}
    target = query(expr, "{{le}}", format="heatmap")
    return panel("heatmap", title, why, [target], unit, size=size, options=options, **more)


def bars(title, why, expr, unit, *, legend, size=(12, 8), **more):
    """One bar per series, now."""
    options = {"displayMode": "gradient", "orientation": "horizontal", "showUnfilled": True,
               "valueMode": "color", "minVizWidth": 8, "minVizHeight": 16, "sizing": "auto",
               "namePlacement": "auto", "maxVizHeight": 300,
               "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
               "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom",
                          "calcs": []}}
    target = query(expr, legend, instant=True, range=False)
    return panel("bargauge", title, why, [target], unit, size=size, options=options, **more)


def states(title, why, expr, *, legend, mappings, size=(24, 7), **more):
    """What was the case when."""
    options = {"mergeValues": True, "showValue": "never", "alignValue": "left", "rowHeight": 0.8,
               "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom"},
               "tooltip": {"mode": "single", "sort": "none"}}
    custom = {"fillOpacity": 80, "lineWidth": 0, "spanNulls": False}
    return panel("state-timeline", title, why, [query(expr, legend)], "short", size=size,
                 options=options, custom=custom, mappings=mappings, **more)


def column(name, unit=None, *, thresholds=None, mappings=None, links=None, decimals=None):
    """How one column of a table is shown."""
    properties = {"unit": unit, "thresholds": thresholds, "mappings": mappings, "links": links,
                  "decimals": decimals}
    if thresholds or mappings:
        properties["custom.cellOptions"] = {"type": "color-text"}
    return {"matcher": {"id": "byName", "options": name},
            "properties": [{"id": key, "value": value} for key, value in properties.items()
                           if value is not None]}


# `empty` is for a table without rows; a cell without a value is only not known.
UNKNOWN_CELLS = {"matcher": {"id": "byType", "options": "number"},
                 "properties": [{"id": "noValue", "value": "–"}]}


def table(title, why, targets, *, columns, hide=(), sort=None, size=(24, 8), **more):
    """Series as rows. `targets` pairs a column's name with its expression; labels come first."""
    queries = [query(expr, format="table", instant=True, range=False) for _, expr in targets]
    values = ["Value"] if len(targets) == 1 else [
        f"Value #{chr(ord('A') + index)}" for index in range(len(targets))]
    named = {value: name for value, (name, _) in zip(values, targets)}
    hidden = {name: True for name in ("Time", "__name__", "job", *hide)}
    hidden |= {value: True for value, name in named.items() if not name}
    transformations = [{"id": "merge", "options": {}}] if len(targets) > 1 else []
    transformations.append({"id": "organize", "options": {
        "excludeByName": hidden, "indexByName": {},
        "renameByName": {value: name for value, name in named.items() if name}}})
    options = {"showHeader": True, "cellHeight": "sm", "footer": {
        "show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
        "sortBy": [{"displayName": sort, "desc": True}] if sort else []}
    custom = {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False,
              "filterable": True}
    return panel("table", title, why, queries, "short", size=size, custom=custom, options=options,
                 overrides=[UNKNOWN_CELLS, *columns], transformations=transformations, **more)


def placed(rows):
    """Panels of rows (a title and panels) with ids and places: left to right, then down."""
    made, y = [], 0
    for number, (title, panels) in enumerate(rows, start=1):
        made.append({"id": 100 * number, "type": "row", "title": title, "collapsed": False,
                     "panels": [], "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        x, y, height = 0, y + 1, 0
        for index, entry in enumerate(panels, start=1):
            width, tall = entry["size"]
            if x + width > 24:
                x, y, height = 0, y + height, 0
            made.append({"id": 100 * number + index,
                         **{key: value for key, value in entry.items() if key != "size"},
                         "gridPos": {"x": x, "y": y, "w": width, "h": tall}})
            x, height = x + width, max(height, tall)
        y += height
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
            "hide": 0, "skipUrlSync": False, "options": [], "current": {}}


def annotation(name, colour, expr, title, text):
    """Marks on all graphs while an expression has a series."""
    return {"name": name, "enable": True, "hide": False, "iconColor": colour,
            "datasource": DATASOURCE, "expr": expand(expr), "titleFormat": title,
            "textFormat": text, "tagKeys": "app,instance", "step": "", "useValueForTime": False}


ANNOTATIONS = [
    {"builtIn": 1, "name": "Annotations & Alerts", "type": "dashboard", "enable": True,
     "hide": True, "iconColor": "rgba(0, 211, 255, 1)",
     "datasource": {"type": "grafana", "uid": "-- Grafana --"}},
    annotation("Restarts", BLUE, "changes(dpdk_app_start_timestamp_seconds{@app}[@]) > 0",
               "{{app}} restarted", "on {{instance}}; its counters began anew"),
    annotation("Leaks", RED, "delta(dpdk_mbuf_leaked{@app}[@]) > 0",
               "{{app}} loses mbufs", "of pool {{pool}} on {{instance}}"),
    annotation("Alerts", ORANGE, 'ALERTS{@, alertstate="firing"}',
               "{{alertname}}", "{{severity}}: {{app}} on {{instance}}"),
    annotation("Captures", "purple", "delta(dpdk_capture_sessions{@app}[@]) > 0",
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

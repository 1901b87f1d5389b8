// SPDX-License-Identifier: BSD-3-Clause
// The texts of the panels. Each test is about something that Grafana once showed wrongly.

import assert from "node:assert/strict";
import { test } from "node:test";

import { boards, cell, colour, lines, panel, panels, rows, shown, stat, versions } from "./grafana.mjs";

const APP = { job: "pmdscope", instance: "host:9177", app: "fwd" };
const GREY = "#808080";

test("the panels are read as the Grafana of compose.yaml reads them", () => {
	assert.equal(versions.ofPanels, versions.ofCompose);
});

test("state timelines show the words and colours of their mappings", async () => {
	let checked = 0;
	for (const name of Object.keys(boards)) {
		for (const timeline of panels(name).filter(({ type }) => type === "state-timeline")) {
			const labels = { ...APP, port: "p", reason: "leak" };
			const [{ fields: [, field] }] = await shown(timeline, { A: [{ labels, values: [0, 1] }] });
			for (const [value, wanted] of Object.entries(timeline.fieldConfig.defaults.mappings[0].options)) {
				assert.deepEqual(cell(field, Number(value)),
					{ text: wanted.text, color: colour(wanted.color) }, `${timeline.title}: ${value}`);
				checked++;
			}
			assert.equal(cell(field, 7).color, GREY, `${timeline.title}: a value without a mapping`);
		}
	}
	assert.ok(checked >= 10, `${checked} mappings`);
});

test("a link that was down for a while is down and red, then up and green", async () => {
	const links = panel("app", "Links");
	const [{ fields: [, field] }] = await shown(links, {
		A: [{ labels: { ...APP, port: "0000:01:00.0" }, values: [1, 1, 0, 0, 1] }],
	});
	assert.deepEqual(field.values.map((value) => cell(field, value).text), ["up", "up", "down", "down", "up"]);
	assert.equal(cell(field, 0).color, colour("red"));
	assert.equal(cell(field, 1).color, colour("green"));
});

test("the time until a pool is empty is red from 98 % in use, and grey while unknown", async () => {
	for (const name of ["app", "fleet", "pools"]) {
		const first = panel(name, "Pool empty in");
		assert.deepEqual(await stat(first, 0), { text: "0 s", color: colour("red") }, name);
		assert.deepEqual(await stat(first, 30), { text: "30 s", color: colour("red") }, name);
		assert.deepEqual(await stat(first, 120), { text: "2 mins", color: colour("orange") }, name);
		assert.deepEqual(await stat(first, 600), { text: "10 mins", color: colour("green") }, name);
		assert.deepEqual(await stat(first, 1e12), { text: "none drains", color: colour("green") }, name);
		assert.deepEqual(await stat(first), { text: "not reported", color: GREY }, name);
	}
});

test("a number without data is grey and says why", async () => {
	for (const name of Object.keys(boards)) {
		for (const one of panels(name).filter(({ type }) => type === "stat")) {
			const wanted = { text: one.fieldConfig.defaults.noValue, color: GREY };
			assert.deepEqual(await stat(one), wanted, `${name}: ${one.title}`);
			assert.deepEqual(await stat(one, null), wanted, `${name}: ${one.title}, of null`);
		}
	}
});

test("the table of alerts has severities as words, and a dash for what an alert has not", async () => {
	const alerts = panel("fleet", "Alerts firing", "table");
	const made = await rows(alerts, { A: [
		{ labels: { ...APP, alertname: "DpdkMbufLeak", alertstate: "firing", severity: "critical", pool: "mb" },
			values: [3] },
		{ labels: { job: "pmdscope", instance: "b:9177", alertname: "DpdkExporterDown", alertstate: "firing",
			severity: "warning" }, values: [2] },
	] });
	assert.deepEqual(Object.keys(made[0]), ["Severity", "alertname", "app", "instance", "pool"]);
	assert.deepEqual(made[0].Severity, { text: "critical", color: colour("red") });
	assert.deepEqual(made[1].Severity, { text: "warning", color: colour("orange") });
	assert.equal(made[1].app.text, "–");
	assert.equal(made[1].pool.text, "–");
	assert.equal(alerts.fieldConfig.defaults.noValue, "No alert fires.");
});

test("what is not known of an app is a grey dash, also in a column with colours", async () => {
	const other = { ...APP, app: "other" };
	const [known, unknown] = await rows(panel("fleet", "All apps"), {
		A: [{ labels: APP, values: [1] }, { labels: other, values: [0] }],
		H: [{ labels: APP, values: [0.985] }],
		I: [{ labels: APP, values: [0] }],
	});
	assert.deepEqual(known.Up, { text: "up", color: colour("green") });
	assert.deepEqual(known["Fullest pool"], { text: "98.5%", color: colour("red") });
	assert.deepEqual(known.Leaked, { text: "0", color: colour("green") });
	assert.deepEqual(unknown.Up, { text: "down", color: colour("red") });
	for (const name of ["Fullest pool", "Leaked"]) {
		assert.deepEqual(unknown[name], { text: "–", color: GREY }, name);
	}
});

test("labels that are numbers stay as they are, and so does an MTU", async () => {
	const lcore = { ...APP, lcore: "1", tid: "14932", cpus: "3" };
	const [thread] = await rows(panel("lcores", "Lcores"), { A: [{ labels: lcore, values: [1] }] });
	assert.equal(thread.tid.text, "14932");
	const port = { ...APP, port: "0000:01:00.0" };
	const [row] = await rows(panel("app", "Ports"), {
		A: [{ labels: { ...port, numa_node: "1", driver: "net_ixgbe" }, values: [1] }],
		D: [{ labels: port, values: [1e10] }], E: [{ labels: port, values: [1500] }],
	});
	assert.equal(row["MTU, bytes"].text, "1500");
	assert.equal(row.Speed.text, "10 Gb/s");
	assert.equal(row.numa_node.text, "1");
});

test("events have a name in their unit", async () => {
	const labels = { ...APP, lcore: "1" };
	const [line] = await lines(panel("lcores", "Stalls", "timeseries"), { A: [{ labels, values: [3, 2] }] });
	assert.equal(line.name, "fwd@host:9177 lcore 1");
	assert.deepEqual(line.legend, { last: "2 stalls/s", max: "3 stalls/s" });
});

test("the line of the app that leaks comes first, and has room", async () => {
	const labels = { ...APP, pool: "mb", site: "integration/reflector/leak.c:23 reflect" };
	const sites = panel("pools", "Leak sites");
	const answers = { A: [{ labels, values: [1200] }], B: [{ labels, values: [0.25] }] };
	const [row] = await rows(sites, answers);
	assert.deepEqual(Object.keys(row), ["site", "app", "instance", "pool", "Lost", "Growth"]);
	assert.equal(row.site.text, labels.site);
	assert.deepEqual(row.Lost, { text: "1.20 K", color: colour("red") });
	assert.deepEqual(row.Growth, { text: "0.25 mbufs/s", color: colour("red") });
	const [{ fields }] = await shown(sites, answers);
	assert.equal(fields[0].config.custom.width, 480);
	assert.equal(fields[1].config.custom.minWidth, 60);
});

test("the last value of what has ended is none, in the legend of every graph", async () => {
	for (const name of Object.keys(boards)) {
		for (const graph of panels(name).filter(({ type }) => type === "timeseries")) {
			const labels = { ...APP, port: "p", queue: "0", pool: "mb", lcore: "1", session: "1" };
			// Grafana ends a series that has no more samples with a null.
			const [line] = await lines(graph, { A: [{ labels, values: [50, 50, null] }] });
			assert.equal(line.legend.last, "–", `${name}: ${graph.title}`);
			assert.notEqual(line.legend.max, "–", `${name}: ${graph.title}`);
		}
	}
});

test("what a port sends is drawn downwards, and positive in the legend", async () => {
	const labels = { ...APP, port: "p" };
	const [received, sent] = await lines(panel("app", "Packets by port"), {
		A: [{ labels, values: [200000, 200000] }], B: [{ labels, values: [104000, 100000] }],
	});
	assert.equal(received.name, "rx fwd@host:9177 p");
	assert.equal(sent.name, "tx fwd@host:9177 p");
	assert.equal(received.field.config.custom.transform, undefined);
	assert.equal(sent.field.config.custom.transform, "negative-Y");
	assert.equal(received.legend.max, "200 kp/s");
	assert.equal(sent.legend.max, "104 kp/s");
	assert.equal(sent.legend.last, "100 kp/s");
});

// SPDX-License-Identifier: BSD-3-Clause
// Panels of the dashboards, with the data that Prometheus would give them, as Grafana shows them. Texts, colours,
// overrides, transformations and reducers are Grafana's own: those of @grafana/data, which devtools/panels.sh
// fetches. This module replaces the rest of Grafana, which connects them.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// @grafana/data expects to be in a browser.
globalThis.window ??= globalThis;
globalThis.navigator ??= { language: "en-GB", languages: ["en-GB"] };
const root = new URL("../../../", import.meta.url);
const load = createRequire(new URL("build/tools/panels/", root));
// @grafana/data requires this ES module, and Node 18 refuses to require it: it is loaded beforehand.
const interpolate = load.resolve("d3-interpolate");
load.cache[interpolate] = { id: interpolate, loaded: true, exports: await import(interpolate) };
const data = load("@grafana/data");
const { firstValueFrom } = load("rxjs");

const theme = data.createTheme();
// Seconds between two samples, and the time of the first one.
const STEP = 15000;
const START = Date.UTC(2025, 0, 1);
const unchanged = (text) => text;

const always = () => true;
const ofNumbers = (field) => field.type === data.FieldType.number;
const STANDARD = [
	["displayName", data.displayNameOverrideProcessor, always],
	["unit", data.unitOverrideProcessor, always],
	["min", data.numberOverrideProcessor, ofNumbers],
	["max", data.numberOverrideProcessor, ofNumbers],
	["decimals", data.numberOverrideProcessor, ofNumbers],
	["noValue", data.stringOverrideProcessor, always],
	["color", data.identityOverrideProcessor, always],
	["thresholds", data.thresholdsOverrideProcessor, ofNumbers],
	["mappings", data.valueMappingsOverrideProcessor, always],
	["links", data.dataLinksOverrideProcessor, always],
];

// A property of a field's configuration, as Grafana registers it.
function property(id, process, shouldApply, path = id, isCustom = false) {
	return { id, path, name: id, process, shouldApply, isCustom, settings: {}, override: null, editor: null };
}

data.standardFieldConfigEditorRegistry.setInit(() => STANDARD.map((entry) => property(...entry)));
data.standardTransformersRegistry.setInit(() =>
	[data.standardTransformers.mergeTransformer, data.standardTransformers.organizeFieldsTransformer].map(
		(transformation) => ({ id: transformation.id, name: transformation.name, transformation, editor: null }),
	),
);

// Properties of a panel: the standard ones, and those of its own kind.
function properties(panel) {
	const { defaults, overrides } = panel.fieldConfig;
	const ids = new Set(Object.keys(defaults.custom ?? {}).map((name) => `custom.${name}`));
	for (const entry of overrides) {
		entry.properties.filter(({ id }) => id.startsWith("custom.")).forEach(({ id }) => ids.add(id));
	}
	const registry = data.createFieldConfigRegistry({}, panel.type);
	for (const id of ids) {
		registry.register(property(id, data.identityOverrideProcessor, always, id.slice("custom.".length), true));
	}
	return registry;
}

// In JSON, the lowest threshold has no value; in Grafana, it is minus infinity.
function withLowest(fieldConfig) {
	const made = structuredClone(fieldConfig);
	const all = [made.defaults.thresholds, ...made.overrides.flatMap((entry) =>
		entry.properties.filter(({ id }) => id === "thresholds").map(({ value }) => value))];
	for (const thresholds of all) {
		thresholds.steps[0].value = -Infinity;
	}
	return made;
}

// All dashboards by name.
export const boards = Object.fromEntries(
	["app", "captures", "fleet", "lcores", "pools"].map((name) => [
		name, JSON.parse(readFileSync(new URL(`dashboards/grafana/json/${name}.json`, root), "utf8")),
	]),
);

// All panels of a dashboard, also those in rows.
export function panels(name) {
	const inside = (panel) => (panel.type === "row" ? panel.panels.flatMap(inside) : [panel]);
	return boards[name].panels.flatMap(inside);
}

// One panel of a dashboard, by its title and perhaps its kind.
export function panel(name, title, kind) {
	const [found, ...more] = panels(name).filter((one) => one.title === title && (!kind || one.type === kind));
	if (!found || more.length) {
		throw new Error(`${name} has ${found ? "several panels" : "no panel"} ${title}`);
	}
	return found;
}

// Frames of one target: a frame for each series, or one table.
function frames(target, series, several) {
	if (target.format === "table") {
		const names = [...new Set(series.flatMap(({ labels }) => Object.keys(labels)))].sort();
		return series.length === 0 ? [] : [data.toDataFrame({ refId: target.refId, fields: [
			{ name: "Time", type: data.FieldType.time, values: series.map(() => START) },
			...names.map((name) => ({
				name, type: data.FieldType.string, values: series.map(({ labels }) => labels[name]),
			})),
			{
				name: several ? `Value #${target.refId}` : "Value", type: data.FieldType.number,
				values: series.map(({ values }) => values.at(-1)),
			},
		] })];
	}
	return series.map(({ labels, values }) => data.toDataFrame({ refId: target.refId, fields: [
		{ name: "Time", type: data.FieldType.time, values: values.map((_, index) => START + index * STEP) },
		{
			name: "Value", type: data.FieldType.number, values, labels,
			config: { displayNameFromDS: data.renderLegendFormat(target.legendFormat ?? "", labels) },
		},
	] }));
}

// What a panel shows for these answers: the series of each target, {A: [{labels, values}]}.
export async function shown(panel, answers) {
	const several = panel.targets.length > 1;
	const given = panel.targets.flatMap((target) => frames(target, answers[target.refId] ?? [], several));
	const made = await firstValueFrom(data.transformDataFrame(panel.transformations ?? [], given));
	return data.applyFieldOverrides({
		data: made, fieldConfig: withLowest(panel.fieldConfig), fieldConfigRegistry: properties(panel),
		replaceVariables: unchanged, theme, timeZone: "utc",
	});
}

// Text and colour of a value, as in a cell.
export function cell(field, value) {
	const display = field.display(value);
	return { text: data.formattedValueToString(display), color: display.color };
}

// Text and colour of a panel with one number.
export async function stat(panel, ...values) {
	const answers = values.length ? { A: [{ labels: {}, values }] } : {};
	const [{ display }] = data.getFieldDisplayValues({
		data: await shown(panel, answers), fieldConfig: withLowest(panel.fieldConfig),
		reduceOptions: panel.options.reduceOptions, replaceVariables: unchanged, theme, timeZone: "utc",
	});
	return { text: data.formattedValueToString(display), color: display.color };
}

// Lines of a graph: name, the texts of the legend's columns, and the field.
export async function lines(panel, answers) {
	const made = await shown(panel, answers);
	return made.map((frame) => {
		const field = frame.fields[1];
		const reduced = data.reduceField({ field, reducers: panel.options.legend.calcs });
		return {
			name: data.getFieldDisplayName(field, frame, made), field,
			legend: Object.fromEntries(panel.options.legend.calcs.map(
				(name) => [name, data.formattedValueToString(field.display(reduced[name]))])),
		};
	});
}

// Rows of a table: text and colour of each cell by the name of its column, in the order of columns.
export async function rows(panel, answers) {
	const [frame] = await shown(panel, answers);
	return Array.from({ length: frame.length }, (_, row) => Object.fromEntries(
		frame.fields.map((field) => [
			data.getFieldDisplayName(field, frame), cell(field, field.values[row]),
		])));
}

// A colour by its name in the dashboards, as Grafana draws it.
export function colour(name) {
	return data.colorManipulator.asHexString(theme.visualization.getColorByName(name));
}

// The version of Grafana that all this is of, and the one that dashboards/compose.yaml starts.
export const versions = {
	ofPanels: load("@grafana/data/package.json").version,
	ofCompose: /grafana\/grafana:([\d.]+)/.exec(readFileSync(new URL("dashboards/compose.yaml", root), "utf8"))[1],
};

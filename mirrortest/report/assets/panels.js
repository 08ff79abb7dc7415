// Lines over time: a panel for each unit, all of one time axis, which is not the timeline's.
"use strict";
const panels = (() => {
  const { data, byId, colour, FONT, LEFT, FRAME, short, seconds, clock, log, literal } = drawing;
  const { text, line, tooltip, timeAxis, logAxis, eventSeries, put } = drawing;
  if (!data) return {};

  const PANEL = 76;
  const GAP = 18;
  const STYLES = {
    asked: { color: "muted", type: [2, 3], width: 1.25 },
    sent: { color: "accent", type: [6, 3], width: 1.25 },
    first: { color: "accent", type: "solid", width: 2 },
    second: { color: "text", type: "solid", width: 1.25 },
    third: { color: "muted", type: "solid", width: 1.25 },
    fourth: { color: "text", type: [6, 3], width: 1.25 },
    fifth: { color: "accent", type: [2, 3], width: 1.5 },
    sixth: { color: "muted", type: [6, 3], width: 1.25 },
  };

  const shown = (unit, value) => {
    if (value === null) return "none";
    return unit === "s" ? seconds(value) : `${short.format(value)} ${unit}`.trim();
  };

  // Zero and the highest value, in a plain number's panel.
  function plainAxis(values, unit, more) {
    const most = Math.max(...values) || 1;
    return {
      type: "value",
      min: 0,
      max: most,
      axisLabel: {
        ...text(),
        customValues: [0, most],
        formatter: (value) => shown(unit, value),
      },
      axisTick: { show: false, customValues: [0, most] },
      axisLine: { show: false },
      splitLine: { customValues: [0, most], ...line("line") },
      ...more,
    };
  }

  function latencyAxis(values, more) {
    const logs = values.filter((value) => value > 0).map(log);
    if (!logs.length) logs.push(-3);
    const low = Math.floor(Math.min(...logs));
    const high = Math.max(Math.ceil(Math.max(...logs)), low + 1);
    // A panel has no room for more than decades, and for few of those.
    const each = Math.ceil((high - low) / 4);
    const customValues = [];
    for (let at = low; at <= high; at += each) customValues.push(at);
    return logAxis(low, high, {
      axisTick: { show: false, customValues },
      axisLabel: { ...text(), customValues, formatter: (at) => seconds(10 ** at) },
      splitLine: { customValues, ...line("line") },
      ...more,
    });
  }

  // How many rows a panel's legend takes; its letters are about half as wide as they are high.
  function legendRows(lines, width) {
    let [rows, room] = [1, width];
    lines.forEach((each) => {
      const needed = 40 + each.name.length * FONT * 0.6;
      if (needed > room && room < width) [rows, room] = [rows + 1, width];
      room -= needed;
    });
    return lines.length > 1 ? rows : 0;
  }

  function draw(name, { start, step, panels }) {
    const width = byId(`chart-${name}`).clientWidth - LEFT - FRAME.right;
    const option = { title: [], legend: [], grid: [], xAxis: [], yAxis: [], series: [] };
    let top = 4;
    panels.forEach((panel, number) => {
      const { lines, unit } = panel;
      const head = 26 + 18 * legendRows(lines, width);
      const end = start + step * lines[0].values.length;
      const full = (each) => `${panel.title}: ${each.name}`;
      const scaled = (value) => (unit !== "s" ? value : value > 0 ? log(value) : null);
      const axes = { xAxisIndex: number, yAxisIndex: number };
      const values = lines.flatMap((each) => each.values).filter((value) => value !== null);
      option.title.push({
        // One line has no legend.
        text: lines.length > 1 ? panel.title : full(lines[0]),
        left: LEFT,
        top,
        padding: 0,
        textStyle: { fontSize: FONT + 1, fontWeight: "bold", color: colour("text") },
      });
      option.legend.push({
        show: lines.length > 1,
        data: lines.map(full),
        formatter: (each) => each.slice(panel.title.length + 2),
        left: LEFT,
        right: FRAME.right,
        top: top + 19,
        padding: 0,
        itemGap: 10,
        itemWidth: 22,
        itemHeight: 10,
        itemStyle: { opacity: 0 },
        selectedMode: false,
        textStyle: { ...text() },
      });
      option.grid.push({ ...FRAME, top: top + head, height: PANEL });
      option.xAxis.push(
        timeAxis({
          gridIndex: number,
          min: start,
          max: end,
          axisLabel: {
            ...text(),
            show: number === panels.length - 1,
            hideOverlap: true,
            formatter: (at) => clock(at, step, end - start),
          },
        }),
      );
      const more = { gridIndex: number };
      option.yAxis.push(unit === "s" ? latencyAxis(values, more) : plainAxis(values, unit, more));
      lines.forEach((each) => {
        const { color, type, width } = STYLES[each.style];
        option.series.push({
          type: "line",
          name: full(each),
          ...axes,
          data: each.values.map((value, slot) => [start + step * (slot + 0.5), scaled(value)]),
          symbol: "circle",
          // A line of one point is nothing.
          symbolSize: (_, { dataIndex: at }) => {
            const alone = [at - 1, at + 1].every((next) => (each.values[next] ?? null) === null);
            return alone || each.values.length <= 60 ? 4 : 0;
          },
          showSymbol: true,
          showAllSymbol: true,
          itemStyle: { color: colour(color) },
          lineStyle: { color: colour(color), type, width },
        });
      });
      option.series.push(eventSeries(axes, false, start, end));
      top += head + PANEL + GAP;
    });
    put(
      name,
      {
        ...option,
        tooltip: tooltip("axis", (items) => {
          const panel = panels[items[0].axisIndex];
          const slot = Math.floor((items[0].value[0] - start) / step);
          const rows = panel.lines.map(
            (each) => `${literal(each.name)}  ${shown(panel.unit, each.values[slot])}`,
          );
          const [from, until] = [slot, slot + 1].map((at) => clock(start + step * at, step, 0));
          return [`${from} to ${until}`, panel.title, ...rows].join("\n");
        }),
      },
      top + 8,
    );
  }

  return { draw };
})();

// The load over time: a panel for each unit, all of one time axis, which is not the timeline's.
"use strict";
const load = (() => {
  const { data, colour, FONT, LEFT, FRAME, short, seconds, clock, log } = drawing;
  const { text, line, tooltip, timeAxis, logAxis, eventSeries, put } = drawing;
  if (!data || !data.load) return {};

  const { start, step } = data.load;
  const PANEL = 76;
  const GAP = 18;
  const STYLES = {
    asked: { color: "muted", type: [2, 3], width: 1.25 },
    sent: { color: "accent", type: [6, 3], width: 1.25 },
    first: { color: "accent", type: "solid", width: 2 },
    second: { color: "text", type: "solid", width: 1.25 },
    third: { color: "muted", type: "solid", width: 1.25 },
  };

  const shown = (unit, value) => {
    if (value === null) return "none";
    return unit === "s" ? seconds(value) : short.format(value);
  };

  // Zero and the highest value, in a plain number's panel.
  function plainAxis(values, more) {
    const most = Math.max(...values) || 1;
    return {
      type: "value",
      min: 0,
      max: most,
      axisLabel: {
        ...text(),
        customValues: [0, most],
        formatter: (value) => short.format(value),
      },
      axisTick: { show: false, customValues: [0, most] },
      axisLine: { show: false },
      splitLine: { customValues: [0, most], ...line("line") },
      ...more,
    };
  }

  function latencyAxis(values, more) {
    const logs = values.filter((value) => value > 0).map(log);
    const low = Math.floor(Math.min(...logs));
    return logAxis(low, Math.max(Math.ceil(Math.max(...logs)), low + 1), more);
  }

  function draw(topic) {
    const panels = data.load.topics[topic];
    // A phone needs two rows for some legends.
    const HEAD = window.innerWidth < 640 ? 62 : 44;
    const option = { title: [], legend: [], grid: [], xAxis: [], yAxis: [], series: [] };
    panels.forEach((panel, number) => {
      const { lines, unit } = panel;
      const top = number * (HEAD + PANEL + GAP);
      const end = start + step * lines[0].values.length;
      const name = (each) => `${panel.title}: ${each.name}`;
      const scaled = (value) => (unit === "s" && value !== null ? log(value) : value);
      const axes = { xAxisIndex: number, yAxisIndex: number };
      const values = lines.flatMap((each) => each.values).filter((value) => value !== null);
      option.title.push({
        text: panel.title,
        left: LEFT,
        top,
        padding: 0,
        textStyle: { fontSize: FONT + 1, fontWeight: "bold", color: colour("text") },
      });
      option.legend.push({
        show: lines.length > 1,
        data: lines.map(name),
        formatter: (each) => each.slice(panel.title.length + 2),
        left: LEFT,
        top: top + 19,
        padding: 0,
        itemGap: 10,
        itemWidth: 22,
        itemHeight: 10,
        selectedMode: false,
        textStyle: { ...text() },
      });
      option.grid.push({ ...FRAME, top: top + HEAD, height: PANEL });
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
      option.yAxis.push(unit === "s" ? latencyAxis(values, more) : plainAxis(values, more));
      lines.forEach((each) => {
        const { color, type, width } = STYLES[each.style];
        option.series.push({
          type: "line",
          name: name(each),
          ...axes,
          data: each.values.map((value, slot) => [start + step * (slot + 0.5), scaled(value)]),
          symbol: "circle",
          symbolSize: 4,
          // A line of one point is nothing.
          showSymbol: each.values.length <= 60,
          showAllSymbol: true,
          itemStyle: { color: colour(color) },
          lineStyle: { color: colour(color), type, width },
        });
      });
      option.series.push(eventSeries(axes, false));
    });
    put(
      "load",
      {
        ...option,
        tooltip: tooltip("axis", (items) => {
          const panel = panels[items[0].axisIndex];
          const slot = Math.floor((items[0].value[0] - start) / step);
          const rows = panel.lines.map(
            (each) => `${each.name}  ${shown(panel.unit, each.values[slot])}`,
          );
          const [from, until] = [slot, slot + 1].map((at) => clock(start + step * at, step, 0));
          return [`${from} to ${until}`, panel.title, ...rows].join("\n");
        }),
      },
      panels.length * (HEAD + PANEL + GAP) + 8,
    );
  }

  return { draw };
})();

// Draws a comparison's charts: each figure's repeats and interval, and latencies over each other.
"use strict";
(() => {
  const { data, charts, colour, byId, literal, seconds, short, log, text, line, tooltip, logAxis, put } =
    drawing;
  window.mirrortest = { charts };
  if (!data) return;

  const TONES = { worse: "bad", better: "good", differs: "note" };
  const LABELS = [-90, -75, -50, -25, 0, 33, 100, 300, 900, 9900];
  const place = (percent) => Math.log10(1 + percent / 100);
  const percent = (share) => `${share > 0 ? "+" : ""}${Number((100 * share).toPrecision(3))} %`;
  // On a scale on which twice as much and half as much are as far away.
  const position = (share) => Math.log10(Math.max(1 + share, 0.001));

  function drawDifferences(pair, number) {
    const rows = pair.figures;
    const reach = (row) => [row.low, row.high, ...row.base, ...row.new].map(position);
    const all = [...rows.flatMap(reach), place(-25), place(33)];
    const low = Math.min(...all) - 0.02;
    const high = Math.max(...all) + 0.02;
    const shown = LABELS.map(place).filter((at) => at >= low && at <= high);
    const names = rows.map((row) => row.name);
    const dots = (side, offset, name) => ({
      type: "scatter",
      symbolSize: 5,
      symbolOffset: [0, offset],
      itemStyle: { color: colour(name), opacity: 0.7 },
      silent: true,
      data: rows.flatMap((row, at) => row[side].map((share) => [position(share), at])),
    });
    put(
      `differences-${number}`,
      {
        grid: { left: 150, right: 22, top: 8, bottom: 30, outerBoundsMode: "none" },
        xAxis: {
          type: "value",
          min: low,
          max: high,
          axisLine: { show: false },
          axisTick: { show: false },
          axisLabel: {
            ...text(),
            customValues: shown,
            hideOverlap: true,
            formatter: (at) => `${Math.round(100 * (10 ** at - 1))} %`,
          },
          splitLine: { customValues: shown, ...line("line") },
        },
        yAxis: {
          type: "category",
          data: names,
          inverse: true,
          axisLine: { show: false },
          axisTick: { show: false },
          axisLabel: { ...text(), interval: 0, formatter: literal },
        },
        series: [
          dots("base", -4, "muted"),
          dots("new", 4, "accent"),
          {
            type: "custom",
            z: 3,
            data: rows.map((row, at) => [at, position(row.low), position(row.difference), position(row.high)]),
            encode: { x: [1, 3], y: 0 },
            renderItem(params, api) {
              const row = rows[api.value(0)];
              const [from, middle, to] = [1, 2, 3].map((at) => api.coord([api.value(at), api.value(0)]));
              const stroke = colour(TONES[row.change] || "muted");
              return {
                type: "group",
                children: [
                  {
                    type: "line",
                    shape: { x1: from[0], y1: from[1], x2: Math.max(to[0], from[0] + 1), y2: to[1] },
                    style: { stroke, lineWidth: 3 },
                  },
                  { type: "circle", shape: { cx: middle[0], cy: middle[1], r: 5 }, style: { fill: stroke } },
                ],
              };
            },
          },
        ],
        tooltip: tooltip("item", ({ dataIndex, seriesIndex }) => {
          const row = rows[dataIndex];
          if (seriesIndex !== 2) return "";
          const interval = `${percent(row.low)} to ${percent(row.high)}`;
          return `${literal(row.name)}: ${row.change}\n${percent(row.difference)} (${interval})`;
        }),
      },
      rows.length * 24 + 46,
    );
  }

  function drawCurve(curve, name) {
    const all = [...curve.base, ...curve.new].flat().filter((value) => value > 0).map(log);
    const low = Math.floor(Math.min(...all) * 4) / 4;
    const high = Math.max(Math.ceil(Math.max(...all) * 4) / 4, low + 0.5);
    const lines = (side, tone) =>
      curve[side].map((values) => ({
        type: "line",
        name: side,
        data: values.map((value) => (value > 0 ? log(value) : null)),
        symbolSize: 4,
        connectNulls: true,
        itemStyle: { color: colour(tone) },
        lineStyle: { color: colour(tone), width: 1.5, type: side === "base" ? "dashed" : "solid" },
      }));
    put(
      name,
      {
        grid: { left: 58, right: 22, top: 12, bottom: 30, outerBoundsMode: "none" },
        xAxis: {
          type: "category",
          data: curve.statistics,
          axisLine: line("line"),
          axisTick: { show: false },
          axisLabel: { ...text() },
        },
        yAxis: logAxis(low, high),
        series: [...lines("base", "muted"), ...lines("new", "accent")],
        tooltip: tooltip("item", ({ seriesName, dataIndex, value }) =>
          `${seriesName}, ${curve.statistics[dataIndex]}: ${seconds(10 ** value)}`,
        ),
      },
      280,
    );
  }

  // A figure over time, from the start of each repeat.
  function drawTime(time, name) {
    const latency = time.unit === "s";
    const scaled = (value) => (latency && value !== null ? (value > 0 ? log(value) : null) : value);
    const show = (value) => (latency ? seconds(10 ** value) : short.format(value));
    const lines = (side, tone) =>
      time[side].map(({ step, values }, at) => ({
        type: "line",
        name: `${side} ${at + 1}`,
        showSymbol: values.length === 1,
        symbolSize: 4,
        itemStyle: { color: colour(tone) },
        lineStyle: { color: colour(tone), width: 1, type: side === "base" ? "dashed" : "solid" },
        data: values.map((value, slot) => [(slot + 0.5) * step, scaled(value)]),
      }));
    const series = [...lines("base", "muted"), ...lines("new", "accent")];
    const all = series.flatMap((each) => each.data.map(([, value]) => value)).filter((value) => value !== null);
    const low = Math.floor(Math.min(...all));
    put(
      name,
      {
        grid: { left: 58, right: 22, top: 12, bottom: 30, outerBoundsMode: "none" },
        xAxis: {
          type: "value",
          min: 0,
          axisLine: { ...line("line"), onZero: false },
          axisTick: { show: false },
          splitLine: { show: false },
          axisLabel: { ...text(), hideOverlap: true, formatter: (at) => `${at} s` },
        },
        yAxis: latency
          ? logAxis(low, Math.max(Math.ceil(Math.max(...all)), low + 1))
          : {
              type: "value",
              splitNumber: 3,
              axisLabel: { ...text(), formatter: show },
              splitLine: line("line"),
            },
        series,
        tooltip: tooltip("axis", (items) =>
          [
            `${short.format(items[0].value[0])} s`,
            ...items
              .filter(({ value }) => value[1] !== null)
              .slice(0, 12)
              .map(({ seriesName, value }) => `${seriesName}  ${show(value[1])}`),
          ].join("\n"),
        ),
      },
      170,
    );
  }

  function draw() {
    data.pairs.forEach((pair, number) => {
      if (byId(`chart-differences-${number}`)) drawDifferences(pair, number);
      pair.curves.forEach((curve, at) => drawCurve(curve, `curve-${number}-${at}`));
      pair.times.forEach((time, at) => drawTime(time, `time-${number}-${at}`));
    });
  }

  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();

// Draws a trend's charts: a figure's value of each run, and its levels.
"use strict";
(() => {
  const { data, charts, colour, literal, seconds, short, text, line, tooltip, put } = drawing;
  window.mirrortest = { charts };
  if (!data) return;

  function drawFigure(figure, number) {
    const show = (value) => (figure.seconds ? seconds(value) : `${short.format(value)}${figure.sign}`);
    const last = data.runs.length - 1;
    const levels = figure.changes.map((change, at) => ({
      tone: change.tone,
      value: change.after,
      from: change.at,
      to: figure.changes[at + 1]?.at ?? last,
    }));
    if (levels.length) {
      const [first] = figure.changes;
      levels.unshift({ tone: "muted", value: first.before, from: 0, to: first.at });
    }
    put(
      `trend-${number}`,
      {
        grid: { left: 84, right: 22, top: 12, bottom: 24, outerBoundsMode: "none" },
        xAxis: {
          type: "value",
          min: 0,
          max: Math.max(last, 1),
          axisLine: line("line"),
          axisTick: { show: false },
          splitLine: { show: false },
          axisLabel: { show: false },
        },
        yAxis: {
          type: "value",
          scale: true,
          splitNumber: 3,
          axisLabel: { ...text(), formatter: show },
          splitLine: line("line"),
        },
        series: [
          {
            // Of thousands of runs one path: as many marks would be slow to draw.
            type: "line",
            showSymbol: last < 300,
            symbolSize: 5,
            itemStyle: { color: colour("accent") },
            lineStyle: { color: colour("accent"), width: last < 300 ? 0 : 0.75 },
            data: figure.values
              .map((value, at) => [at, value])
              .filter(([, value]) => value !== null),
          },
          ...levels.map((level) => ({
            type: "line",
            symbol: "none",
            silent: true,
            lineStyle: { color: colour(level.tone), width: 2.5 },
            data: [
              [level.from, level.value],
              [level.to, level.value],
            ],
          })),
        ],
        tooltip: tooltip("axis", ([{ value }]) => `${literal(data.runs[value[0]])}\n${show(value[1])}`),
      },
      150,
    );
  }

  const draw = () => data.figures.forEach(drawFigure);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();

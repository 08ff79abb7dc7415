// Draws the report's charts from the JSON in the page. Asks nothing of any network.
"use strict";
(() => {
  const {
    data,
    charts,
    root,
    colour,
    FONT,
    LEFT,
    FRAME,
    count,
    from,
    whole,
    short,
    clock,
    slotName,
    text,
    tooltip,
    timeAxis,
    box,
    eventSeries,
    failingSeries,
    put,
  } = drawing;
  window.mirrortest = { charts };
  if (!data) return;
  let topic = 0;

  // -- the charts -----------------------------------------------------------------------------

  const TONES = { bad: "bad", doubt: "doubt", note: "note", plain: "accent" };

  function drawStrips() {
    const STRIP = 52;
    const GAP = 34;
    const TOP = data.marks.length ? 40 : 26;
    const last = data.strips.length - 1;
    const titles = [];
    const grids = [];
    const xs = [];
    const ys = [];
    const series = [];
    data.strips.forEach((strip, number) => {
      const counts = strip.counts[topic];
      const most = Math.max(...counts, 1);
      const sum = counts.reduce((total, each) => total + each, 0);
      const top = TOP + number * (STRIP + GAP);
      const tone = colour(TONES[strip.weight]);
      titles.push({
        text: `${strip.label}: ${whole.format(sum)}`,
        left: LEFT,
        top: top - (number ? 20 : TOP - 2),
        padding: 0,
        textStyle: {
          fontSize: FONT + 1,
          fontWeight: "bold",
          color: strip.weight === "plain" ? colour("text") : tone,
        },
      });
      grids.push({ ...FRAME, top, height: STRIP });
      xs.push(
        timeAxis({
          gridIndex: number,
          axisLabel: {
            ...text(),
            show: number === last,
            hideOverlap: true,
            formatter: (at) => clock(at),
          },
        }),
      );
      ys.push({
        type: "value",
        gridIndex: number,
        min: 0,
        max: most,
        axisLabel: {
          ...text(),
          customValues: [0, most],
          formatter: (value) => short.format(value),
        },
        axisTick: { show: false },
        axisLine: { show: false },
        splitLine: { show: false },
      });
      series.push({
        type: "custom",
        name: strip.label,
        xAxisIndex: number,
        yAxisIndex: number,
        z: 2,
        data: counts.map((each, slot) => [slot, 0, each]).filter((item) => item[2]),
        encode: { x: -1, y: [1, 2] },
        renderItem(params, api) {
          const shape = box(params, api, { fill: tone }, count > 90 ? 0 : 1);
          // One message among thousands must not vanish.
          const lacking = 2 - shape.shape.height;
          if (lacking > 0) {
            shape.shape.y -= lacking;
            shape.shape.height = 2;
          }
          return shape;
        },
        tooltip: {
          formatter: ({ value }) =>
            `${slotName(value[0])}\n${whole.format(value[2])} ${strip.label}`,
        },
      });
      series.push(eventSeries({ xAxisIndex: number, yAxisIndex: number }, number === 0));
    });
    series.push(failingSeries({ xAxisIndex: 0, yAxisIndex: 0 }, topic));
    put(
      "strips",
      { title: titles, grid: grids, xAxis: xs, yAxis: ys, series, tooltip: tooltip("item") },
      TOP + data.strips.length * (STRIP + GAP) + 6,
    );
  }

  function draw() {
    drawStrips();
    if (data.latency) latency.draw(topic);
    if (data.load) panels.draw("load", { ...data.load, panels: data.load.topics[topic] });
    data.observed.forEach((each) => panels.draw(each.name, each));
  }

  // -- what may change ------------------------------------------------------------------------

  const choices = document.querySelectorAll("select.topic");
  choices.forEach((choice) => {
    choice.value = "0";
    choice.addEventListener("change", () => {
      topic = Number(choice.value);
      choices.forEach((other) => {
        other.value = choice.value;
      });
      draw();
    });
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.addEventListener("beforeprint", () => {
    root.classList.add("on-paper");
    draw();
  });
  window.addEventListener("afterprint", () => {
    root.classList.remove("on-paper");
    draw();
  });
  draw();
})();

// The charts of latency: percentiles over time, all of it over time, its distribution.
"use strict";
const latency = (() => {
  const {
    data,
    byId,
    colour,
    FONT,
    LEFT,
    FRAME,
    start,
    end,
    step,
    count,
    from,
    whole,
    literal,
    slotName,
    seconds,
    share,
    log,
    ticks,
    text,
    line,
    tooltip,
    timeAxis,
    logAxis,
    box,
    eventSeries,
    failingSeries,
    put,
  } = drawing;

  // Red is what failed.
  const limitColour = (limit) => colour(limit.failed ? "bad" : "muted");

  const DASHES = { p50: "solid", p90: "solid", p99: [6, 3], "p99.9": [2, 3], max: "solid" };
  const WIDTHS = { p50: 2.5, max: 0 };

  function drawPercentiles(topic) {
    const chosen = data.latency.topics[topic];
    const names = data.latency.percentiles;
    const values = chosen.lines.flat().filter((each) => each > 0);
    const limits = data.limits.filter((limit) => limit.seconds > 0);
    const all = [...values, ...limits.map((limit) => limit.seconds)].map(log);
    const low = Math.floor(Math.min(...all) * 4) / 4;
    const high = Math.max(Math.ceil(Math.max(...all) * 4 + 0.2) / 4, low + 0.5);
    const middle = (slot) => from(slot) + step / 2;
    const series = names.map((name, number) => ({
      type: "line",
      name,
      z: 3,
      data: chosen.lines[number].map((value, slot) => [
        middle(slot),
        value > 0 ? log(value) : null,
      ]),
      symbol: name === "max" ? "diamond" : "circle",
      symbolSize: name === "max" ? 5 : 4,
      showSymbol: name === "max" || count <= 60,
      showAllSymbol: true,
      connectNulls: false,
      itemStyle: { color: colour(name === "max" ? "muted" : "accent") },
      lineStyle: {
        color: colour("accent"),
        width: WIDTHS[name] ?? 1.25,
        type: DASHES[name],
      },
    }));
    limits.forEach((limit) => {
      series.push({
        type: "line",
        name: limit.text,
        data: [
          [start, log(limit.seconds)],
          [end, log(limit.seconds)],
        ],
        symbol: "none",
        silent: true,
        z: 2,
        lineStyle: { color: limitColour(limit), width: 1.5, type: "dashed" },
        markPoint: {
          symbol: "rect",
          symbolSize: 0.1,
          data: [{ coord: [start, log(limit.seconds)] }],
          label: {
            formatter: literal(limit.text),
            color: limitColour(limit),
            position: "insideBottomLeft",
            offset: [2, -4],
            fontSize: FONT,
          },
        },
      });
    });
    series.push(failingSeries({}, topic), eventSeries({}, true));
    put(
      "percentiles",
      {
        grid: { ...FRAME, top: 34, bottom: 30 },
        xAxis: timeAxis(),
        yAxis: logAxis(low, high),
        series,
        tooltip: tooltip("axis", (items) => {
          const at = Math.floor((items[0].value[0] - start) / step);
          const lines = names.map((name, number) => `${name}  ${seconds(chosen.lines[number][at])}`);
          return [slotName(at), ...lines.reverse()].join("\n");
        }),
      },
      300,
    );
  }

  function drawLineLegend() {
    const svg = (tag, attributes) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
      Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
      return element;
    };
    byId("legend-percentiles").replaceChildren(
      ...data.latency.percentiles.map((name) => {
        const item = document.createElement("li");
        const sample = svg("svg", { viewBox: "0 0 32 12", "aria-hidden": "true" });
        sample.append(
          name === "max"
            ? svg("path", { d: "M16 3 19 6 16 9 13 6z", stroke: "none" })
            : svg("line", {
                x1: 0,
                y1: 6,
                x2: 32,
                y2: 6,
                "stroke-width": WIDTHS[name] ?? 1.25,
                "stroke-dasharray": DASHES[name] === "solid" ? "none" : DASHES[name].join(" "),
              }),
        );
        item.append(sample, name);
        return item;
      }),
    );
  }

  const SHADES = 6;

  // From one colour to another in so many steps: '#rrggbb' both.
  function shades(low, high) {
    const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    const [a, b] = [parts(low), parts(high)];
    return Array.from({ length: SHADES }, (_, number) => {
      const mixed = a.map((value, place) =>
        Math.round(value + ((b[place] - value) * number) / (SHADES - 1)),
      );
      return `rgb(${mixed.join(",")})`;
    });
  }

  function drawHeat(topic) {
    const { cells } = data.latency.topics[topic];
    const edges = data.latency.bins.map((edge) => Math.max(edge, 1e-9)).map(log);
    const most = Math.max(...cells.map((cell) => cell[2]), 1);
    const colours = shades(colour("accent-far"), colour("accent"));
    const bounds = Array.from({ length: SHADES + 1 }, (_, number) => most ** (number / SHADES));
    const shadeOf = (number) =>
      Math.min(Math.floor((Math.log(number) / Math.log(most || 1) || 0) * SHADES), SHADES - 1);
    put(
      "heat",
      {
        grid: { ...FRAME, top: 24, bottom: 30 },
        xAxis: timeAxis(),
        yAxis: logAxis(edges[0], edges[edges.length - 1], { splitLine: { show: false } }),
        series: [
          {
            type: "custom",
            name: "messages",
            z: 2,
            data: cells.map(([slot, bin, number]) => [slot, edges[bin], edges[bin + 1], number]),
            encode: { x: -1, y: [1, 2] },
            renderItem: (params, api) =>
              box(params, api, { fill: colours[shadeOf(api.value(3))] }, 0),
          },
          eventSeries({}, true),
        ],
        tooltip: tooltip(
          "item",
          ({ value }) =>
            `${slotName(value[0])}\n${seconds(10 ** value[1])} to ${seconds(10 ** value[2])}\n${whole.format(value[3])} messages`,
        ),
      },
      300,
    );
    const legend = byId("legend-heat");
    legend.replaceChildren(
      ...colours.flatMap((shade, number) => {
        const low = Math.ceil(bounds[number]);
        const high = number === SHADES - 1 ? Math.round(most) : Math.ceil(bounds[number + 1]) - 1;
        if (high < low) return [];
        const item = document.createElement("li");
        const swatch = document.createElement("span");
        swatch.className = "swatch";
        swatch.style.background = shade;
        item.append(
          swatch,
          low === high ? whole.format(low) : `${whole.format(low)} to ${whole.format(high)}`,
        );
        return [item];
      }),
    );
  }

  // Evenly up to 90 %, beyond it each nine (99 %, 99.9 %) as far from the one before.
  const LINEAR = 3;
  const height = (nines) => (nines < 1 ? ((1 - 10 ** -nines) / 0.9) * LINEAR : LINEAR + nines - 1);

  function drawCurve(topic) {
    const curves = data.latency.topics.map((each) => each.curve).filter((curve) => curve.length);
    const xs = curves.flat().map((point) => log(Math.max(point[0], 1e-9)));
    const most = height(Math.max(...curves.flat().map((point) => point[1]), 1));
    const low = Math.floor(Math.min(...xs) * 4) / 4;
    const high = Math.max(Math.ceil(Math.max(...xs) * 4 + 0.2) / 4, low + 0.5);
    const shares = [0, 0.25, 0.5, 0.75];
    const marks = [
      ...shares.map((part) => -Math.log10(1 - part)),
      ...Array.from({ length: Math.floor(most - LINEAR) + 1 }, (_, at) => at + 1),
    ].map(height);
    const named = (at) => {
      if (at < LINEAR) return `${Math.round((at / LINEAR) * 90)} %`;
      const nines = Math.round(at - LINEAR) + 1;
      return `${Number((100 - 10 ** (2 - nines)).toFixed(Math.max(nines - 2, 0)))} %`;
    };
    const shown = data.topics.length ? data.topics : ["all"];
    const series = data.latency.topics.map((each, number) => ({
      type: "line",
      name: literal(shown[number]),
      step: "end",
      z: number === topic ? 4 : 2,
      symbol: "none",
      triggerLineEvent: false,
      data: each.curve.map((point) => [log(Math.max(point[0], 1e-9)), height(point[1]), point[2]]),
      lineStyle:
        number === topic
          ? { color: colour("accent"), width: 2.5 }
          : { color: colour("muted"), width: 1, type: "dotted" },
      itemStyle: { color: colour(number === topic ? "accent" : "muted") },
    }));
    data.limits
      .filter((limit) => limit.seconds > 0)
      .forEach((limit) => {
        series.push({
          type: "line",
          name: limit.text,
          data: [
            [log(limit.seconds), 0],
            [log(limit.seconds), most],
          ],
          symbol: "none",
          silent: true,
          lineStyle: { color: limitColour(limit), width: 1.5, type: "dashed" },
        });
      });
    put(
      "curve",
      {
        grid: { ...FRAME, left: LEFT + 8, top: 16, bottom: 30 },
        xAxis: logAxis(low, high, {
          axisLine: { ...line("line"), onZero: false },
          axisLabel: {
            ...text(),
            customValues: ticks(low, high),
            hideOverlap: true,
            formatter: (at) => seconds(10 ** at),
          },
        }),
        yAxis: {
          type: "value",
          min: 0,
          max: Math.ceil(most * 10) / 10,
          axisLine: { show: false },
          axisTick: { show: false, customValues: marks },
          axisLabel: { ...text(), customValues: marks, formatter: named },
          splitLine: { customValues: marks, ...line("line") },
        },
        series,
        tooltip: tooltip("axis", (items) =>
          items
            .filter((item) => item.value.length > 2)
            .map(
              (item) =>
                `${item.seriesName}: ${share(item.value[2])} within ${seconds(10 ** item.value[0])}`,
            )
            .join("\n"),
        ),
      },
      300,
    );
  }

  return {
    draw(topic) {
      drawPercentiles(topic);
      drawLineLegend();
      drawHeat(topic);
      drawCurve(topic);
    },
  };
})();

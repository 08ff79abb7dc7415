// What all charts of the report share: words and numbers, axes, marks. `page.js` draws them.
"use strict";
const drawing = (() => {
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const charts = {};
  if (!data) return { data, charts };

  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const FONT = 12;
  const LEFT = 58;
  const RIGHT = 22;
  // The same for all, or their times would not stand above each other.
  const FRAME = { left: LEFT, right: RIGHT, outerBoundsMode: "none" };
  const { start, step, count } = data.slots;
  const end = start + step * count;
  const from = (slot) => start + slot * step;

  // -- words and numbers ----------------------------------------------------------------------

  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const two = (number) => String(number).padStart(2, "0");
  // Braces would be read as a style's name in a rich text.
  const literal = (text) => String(text).replace(/[{}|]/g, " ");

  function clock(ms, fine = step, span = count * step) {
    const at = new Date(ms);
    const day = `${at.getUTCFullYear()}-${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())}`;
    const time = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}`;
    const seconds = fine < 60000 ? `:${two(at.getUTCSeconds())}` : "";
    return span > 86400000 ? `${day} ${time}` : `${time}${seconds}`;
  }
  const slotName = (slot) => `${clock(from(slot))} to ${clock(from(slot + 1))}`;

  function seconds(value) {
    if (value === null || value === undefined) return "none";
    const units = [
      [1, "s"],
      [1e-3, "ms"],
      [1e-6, "µs"],
      [1e-9, "ns"],
    ];
    const [size, unit] = units.find(([each]) => value >= each * 0.9995) || units[3];
    return `${value >= 1000 ? whole.format(value) : Number((value / size).toPrecision(3))} ${unit}`;
  }

  function share(part) {
    if (part >= 1) return "100 %";
    const digits = Math.max(1, Math.ceil(-Math.log10(1 - part)) - 1);
    return `${(Math.floor(part * 10 ** (digits + 2)) / 10 ** digits).toFixed(digits)} %`;
  }

  // Latencies are drawn by their logarithm: ticks at 1, or at 1, 2 and 5, of each decade.
  const log = (value) => (value === null ? null : Math.log10(value));

  function ticks(low, high) {
    const found = [];
    const digits = high - low > 3.5 ? [1] : [1, 2, 5];
    for (let power = Math.floor(low); power <= Math.ceil(high); power += 1) {
      for (const digit of digits) {
        const at = power + Math.log10(digit);
        if (at >= low - 1e-9 && at <= high + 1e-9) found.push(at);
      }
    }
    return found;
  }

  // -- what all charts share ------------------------------------------------------------------

  const text = () => ({ color: colour("muted"), fontSize: FONT });
  const line = (name) => ({ lineStyle: { color: colour(name) } });

  function tooltip(trigger, formatter) {
    return {
      trigger,
      confine: true,
      renderMode: "richText",
      backgroundColor: colour("surface"),
      borderColor: colour("line"),
      textStyle: { color: colour("text"), fontSize: FONT },
      axisPointer: { type: "line", lineStyle: { color: colour("muted"), type: "dotted" } },
      formatter,
    };
  }

  const timeAxis = (more) => ({
    type: "time",
    min: start,
    max: end,
    splitNumber: Math.max(2, Math.min(8, Math.floor(window.innerWidth / 160))),
    axisLine: { ...line("line"), onZero: false },
    axisTick: { show: false },
    splitLine: { show: false },
    axisLabel: { ...text(), hideOverlap: true, formatter: (at) => clock(at) },
    ...more,
  });

  const logAxis = (low, high, more) => ({
    type: "value",
    min: low,
    max: high,
    axisLine: { show: false },
    axisTick: { show: false, customValues: ticks(low, high) },
    axisLabel: { ...text(), customValues: ticks(low, high), formatter: (at) => seconds(10 ** at) },
    splitLine: { customValues: ticks(low, high), ...line("line") },
    ...more,
  });

  // A rectangle for each item [slot, low, high, ...] of the plane of an x axis of time.
  function box(params, api, style, gap) {
    const [left, bottom] = api.coord([from(api.value(0)), api.value(1)]);
    const [right, top] = api.coord([from(api.value(0) + 1), api.value(2)]);
    // Whole pixels, and a little more, or the seams between neighbours would shine through.
    const [x, y] = [Math.round(left), Math.round(top)];
    const width = Math.max(Math.round(right) - x - gap, 1) + (gap ? 0 : 0.5);
    return { type: "rect", shape: { x, y, width, height: Math.round(bottom) - y }, style };
  }

  // The numbers of events, those that stand too close together as one: 1-3.
  function labels(shown, xs) {
    const found = shown.map(() => "");
    let first = 0;
    shown.forEach((mark, number) => {
      if (number && xs[number] - xs[first] >= 16) first = number;
      found[first] =
        mark.number === shown[first].number
          ? String(mark.number)
          : `${shown[first].number}-${mark.number}`;
    });
    return found;
  }

  // Events as lines, numbered where `named`; the time that a part was down as a shade. What began
  // before the chart's first time is at its edge.
  function eventSeries(axes, named, first = start, last = end) {
    const shown = data.marks
      .filter((mark) => mark.at <= last && (mark.until ?? last) >= first)
      .map((mark) => ({
        number: mark.number,
        at: Math.max(mark.at, first),
        until: Math.min(mark.until ?? last, last),
      }));
    let names = [];
    return {
      type: "custom",
      name: "events",
      silent: true,
      z: 1,
      ...axes,
      data: shown.map((mark) => [mark.at, mark.until]),
      renderItem(params, api) {
        const area = params.coordSys;
        const [x] = api.coord([api.value(0), 0]);
        const [until] = api.coord([api.value(1), 0]);
        const children = [
          {
            type: "rect",
            shape: { x, y: area.y, width: Math.max(until - x, 0), height: area.height },
            style: { fill: colour("shade") },
          },
          {
            type: "line",
            shape: { x1: x, y1: area.y, x2: x, y2: area.y + area.height },
            style: { stroke: colour("muted"), lineWidth: 1, lineDash: [3, 3] },
          },
        ];
        if (!params.dataIndex)
          names = labels(
            shown,
            shown.map((mark) => api.coord([mark.at, 0])[0]),
          );
        if (named) {
          children.push({
            type: "text",
            style: {
              text: names[params.dataIndex],
              x,
              y: area.y - 4,
              align: "center",
              verticalAlign: "bottom",
              fill: colour("text"),
              fontSize: FONT - 1,
              fontWeight: "bold",
            },
          });
        }
        return { type: "group", children };
      },
    };
  }

  // Where a failed condition on latency was broken, as a red bar at the foot of the plane.
  function failingSeries(axes, topic) {
    const stretches = data.limits.flatMap((limit) => limit.failing[topic] || []);
    return {
      type: "custom",
      name: "failing",
      silent: true,
      z: 4,
      ...axes,
      data: stretches.map(([first, last]) => [from(first), from(last)]),
      renderItem(params, api) {
        const area = params.coordSys;
        const [left, right] = [0, 1].map((at) => api.coord([api.value(at), 0])[0]);
        return {
          type: "rect",
          shape: { x: left, y: area.y + area.height - 6, width: Math.max(right - left, 2), height: 6 },
          style: { fill: colour("bad") },
        };
      },
    };
  }

  function put(name, option, height) {
    const element = byId(`chart-${name}`);
    if (height) element.style.height = `${height}px`;
    if (!charts[name]) {
      charts[name] = echarts.init(element, null, { renderer: "svg" });
      new ResizeObserver(() => charts[name].resize()).observe(element);
    }
    charts[name].setOption(
      {
        animation: false,
        useUTC: true,
        textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
        ...option,
      },
      { notMerge: true },
    );
  }

  return {
    data,
    charts,
    root,
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
    short,
    literal,
    clock,
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
  };
})();

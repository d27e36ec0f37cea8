// The script of a lab page. It shows the recording in #data, and errors in #message. In page.html the script comes
// before the data, so that the script is complete even if the file is cut off within the data.
'use strict';
const byId = (id) => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';

// Adds an element to the page. Texts of the recording are always inserted as text, never as HTML.
function add(parent, tag, text, style) {
  const child = document.createElement(tag);
  if (text !== undefined) child.textContent = text;
  if (style) child.className = style;
  return parent.appendChild(child);
}
function draw(parent, tag, attributes) {
  const child = document.createElementNS(SVG, tag);
  for (const name in attributes) child.setAttribute(name, attributes[name]);
  return parent.appendChild(child);
}
function check(condition, what) {
  if (!condition) throw new Error(what);
}
function isCount(value, end = Infinity) {
  return Number.isInteger(value) && value >= 0 && value < end;
}
function fail(what) {
  byId('lab').hidden = true;
  byId('message').hidden = false;
  byId('message').textContent = what;
}
function bytesOf(bytes) {
  const unit = bytes >= 1e9 ? [1e9, 'GB'] : bytes >= 1e6 ? [1e6, 'MB'] : bytes >= 1e3 ? [1e3, 'kB'] : [1, 'B'];
  return +(bytes / unit[0]).toPrecision(4) + ' ' + unit[1];
}
const timeOf = (us) => (us >= 1000 ? +(us / 1000).toPrecision(4) + ' ms' : +us.toPrecision(3) + ' \u00b5s');

// Shows the numbers "1 0.5 nan" of an array "float32 (2, 3)" in rows along the last dimension, at most ten in a row.
function addNumbers(parent, values, type) {
  if (values === '') return add(parent, 'span', 'not kept', 'small');
  const shape = (type.match(/\d+(?=[,)])/g) || []).map(Number);
  const last = shape.length ? shape[shape.length - 1] : 1, width = last <= 10 ? last : 8;
  const numbers = values.split(' '), total = shape.reduce((a, b) => a * b, 1);
  const most = Math.max(...numbers.map((number) => (isFinite(number) ? Math.abs(number) : 0))) || 1;
  const table = add(parent, 'table', undefined, 'numbers');
  for (let i = 0, end; i < numbers.length; i = end) {
    end = Math.min(i + width, (Math.floor(i / last) + 1) * last);
    const row = add(table, 'tr');
    for (const number of numbers.slice(i, end)) {
      const cell = add(row, 'td', isFinite(number) ? +Number(number).toPrecision(4) : number);
      cell.title = number;  // with all digits
      const share = Math.round(60 * Math.min(Math.abs(number) / most, 1)) || 0;
      cell.style.background = `color-mix(in srgb, var(${number < 0 ? '--cold' : '--hot'}) ${share}%, transparent)`;
    }
  }
  if (total > numbers.length) add(parent, 'span', `the first ${numbers.length} of ${total}`, 'small');
}

function addTable(parent, titles, rows) {
  const table = add(parent, 'table'), head = add(table, 'tr');
  for (const title of titles) add(head, 'th', title);
  for (const cells of rows) {
    const row = add(table, 'tr', undefined, cells.style);
    for (const cell of cells) {
      if (typeof cell === 'function') cell(add(row, 'td'));
      else add(row, 'td', cell);
    }
  }
  return table;
}

// A list with up to 100,000 rows. Only the visible rows are elements of the document.
function addList(parent, count, fill, choose) {
  const HEIGHT = 20, space = add(parent, 'div');
  space.style.height = HEIGHT * count + 'px';
  let here = 0;
  const render = () => {
    space.replaceChildren();
    const begin = Math.max(0, Math.floor(parent.scrollTop / HEIGHT) - 5);
    const end = Math.min(count, begin + Math.ceil((parent.clientHeight || 600) / HEIGHT) + 10);
    for (let i = begin; i < end; ++i) {
      const row = add(space, 'div', undefined, 'row');
      row.style.top = HEIGHT * i + 'px';
      fill(row, i);
      if (i === here) row.classList.add('here');
      row.onclick = () => choose(i);
    }
  };
  parent.onscroll = render;
  return (at) => {
    here = at;
    const top = HEIGHT * at, height = parent.clientHeight || 600;
    if (top < parent.scrollTop || top > parent.scrollTop + height - 2 * HEIGHT) parent.scrollTop = top - height / 2;
    render();
  };
}

// A chart with a width of 1000 units and a cursor. A click calls choose(share) with its position from 0 to 1.
function addChart(title, choose) {
  add(byId('charts'), 'span', title, 'small');
  const chart = draw(byId('charts'), 'svg', {class: 'chart', viewBox: '0 0 1000 70', preserveAspectRatio: 'none'});
  chart.onclick = (event) => choose((event.clientX - chart.getBoundingClientRect().left) / chart.clientWidth);
  const cursor = () => draw(chart, 'line', {class: 'cursor', y1: 0, y2: 70});
  return [chart, cursor];
}

function stepPage(data, choose) {
  const {calls, blocks, saved, texts, ticks} = data;
  for (const list of [calls, blocks, saved, texts, ticks, data.notes]) check(Array.isArray(list), 'a list is missing');
  check(ticks.length === 2 && ticks.every((tick) => isCount(tick)) && ticks[0] <= ticks[1], 'the ticks are wrong');
  check(data.step_ms >= 0, 'the time is wrong');
  check(texts.every((text) => typeof text === 'string'), 'the texts are wrong');
  const areTexts = (numbers) => numbers.every((number) => isCount(number, texts.length));
  for (const call of calls) {
    check(Array.isArray(call) && call.length === 11 && areTexts(call.slice(0, 5)) && isCount(call[5], 2) &&
          call[6] >= 0 && isCount(call[7]) && isCount(call[8] + 1) && Array.isArray(call[10]), 'a call is wrong');
    for (const operand of call[10])
      check(Array.isArray(operand) && operand.length === 5 && areTexts([operand[0], operand[2], operand[4]]) &&
            isCount(operand[1], blocks.length), 'an operand is wrong');
  }
  for (const block of blocks)
    check(Array.isArray(block) && block.length === 6 && areTexts(block.slice(0, 3)) &&
          block.slice(3).every((value) => isCount(value)), 'a block is wrong');
  for (const one of saved)
    check(Array.isArray(one) && one.length === 5 && isCount(one[0]) && isCount(one[1], blocks.length) &&
          areTexts([one[2], one[3]]) && isCount(one[4]), 'a saved array is wrong');

  const lastBackward = calls.reduce((last, call, i) => (call[5] ? i : last), -1);
  const phaseOf = (i) => calls[i][5] ? 'backward pass'
                                  : i > lastBackward && lastBackward >= 0 ? 'update' : 'forward pass';
  const nameOf = (call) => texts[call[0]] + (call[1] && texts[call[1]] ? ' of ' + texts[call[1]] : '');
  const isOutside = (block) => block[4] === block[5];  // memory from before the step
  const maker = (block) => (texts[block[1]] ? 'made by ' + texts[block[1]] : 'from before the step');
  const blockName = (block) => texts[block[0]] || maker(block);
  const allTime = calls.reduce((sum, call) => sum + call[6], 0);

  // Memory over time. If several changes fall on one unit of the chart, it shows the largest value.
  const changes = new Map();
  for (const block of blocks) {
    if (isOutside(block)) continue;
    changes.set(block[4], (changes.get(block[4]) || 0) + block[3]);
    changes.set(block[5], (changes.get(block[5]) || 0) - block[3]);
  }
  const span = Math.max(1, ticks[1] - ticks[0]), xOf = (tick) => (1000 * (tick - ticks[0])) / span;
  const atTick = [...changes.keys()].sort((a, b) => a - b), columns = [];
  let bytes = 0, peak = 0, peakTick = ticks[0];
  const bytesAt = [];
  for (const tick of atTick) {
    bytes += changes.get(tick);
    bytesAt.push(bytes);
    if (bytes > peak && tick < ticks[1]) peak = bytes, peakTick = tick;
    const column = Math.min(999, Math.floor(xOf(tick)));
    columns[column] = Math.max(columns[column] || 0, bytes);
  }
  const bytesBefore = (tick) => {  // bytes of the blocks that are allocated when a call begins
    let low = 0, high = atTick.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (atTick[middle] < tick) low = middle + 1; else high = middle;
    }
    return low > 0 ? bytesAt[low - 1] : 0;
  };
  const nearest = (tick) => {
    let at = calls.findIndex((call) => call[7] > tick);
    return at < 0 ? calls.length - 1 : at;
  };
  const [memory, memoryCursor] = addChart(`memory of the step, at most ${bytesOf(peak)}`,
                                          (share) => choose(nearest(ticks[0] + share * span)));
  let path = 'M0 70', height = 70;
  columns.forEach((most, x) => {
    path += ` L${x} ${height}`;
    height = 70 - (64 * most) / (peak || 1);
    path += ` L${x} ${height.toFixed(1)}`;
  });
  draw(memory, 'path', {d: path + ` L1000 ${height} L1000 70 Z`, fill: 'var(--cold)', 'fill-opacity': 0.5});
  const cursor = memoryCursor();

  // Time: calls side by side. Neighbours of the same pass are merged if they are too narrow to be seen.
  const begins = [];
  let sum = 0;
  for (const call of calls) begins.push(sum), sum += call[6];
  const times = `${timeOf(allTime)} of ${timeOf(1000 * data.step_ms)}`;
  const [time, timeCursor] = addChart(`time of kernels, ${times}: forward, backward, update`, (share) => {
    const at = begins.findIndex((begin) => begin > share * sum);
    choose(at < 0 ? calls.length - 1 : Math.max(0, at - 1));
  });
  const bars = [];
  calls.forEach((call, i) => {
    const bar = {x: (1000 * begins[i]) / (sum || 1), width: (1000 * call[6]) / (sum || 1), phase: phaseOf(i)};
    const before = bars[bars.length - 1];
    if (before && before.phase === bar.phase && before.width + bar.width < 1) before.width += bar.width;
    else bars.push(bar);
  });
  const fills = {'forward pass': 'var(--cold)', 'backward pass': 'var(--hot)', update: '#888'};
  for (const bar of bars)
    draw(time, 'rect', {x: bar.x, width: Math.max(0.3, bar.width - 0.3), y: 10, height: 50, fill: fills[bar.phase]});
  const bar = timeCursor();

  const scrollTo = addList(byId('list'), calls.length, (row, i) => {
    row.textContent = `${i + 1} ${nameOf(calls[i])}: ${texts[calls[i][2]]}`;
    if (calls[i][5]) row.classList.add('backward');
  }, choose);
  const boxes = [...document.querySelectorAll('#net rect')];
  boxes.forEach((box, number) => (box.onclick = () => choose(calls.findIndex((call) => call[8] === number))));

  const show = (at) => {
    const call = calls[at], detail = byId('detail');
    detail.replaceChildren();
    add(detail, 'h2', nameOf(call));
    add(detail, 'div', `${texts[call[2]]}: ${texts[call[4]] || 'no kernel'}`);
    const share = +((100 * call[6]) / (allTime || 1)).toPrecision(3);
    add(detail, 'div', [texts[call[3]], timeOf(call[6]), `${share} % of the kernels' time`,
                        `memory ${bytesOf(bytesBefore(call[7]))}`].filter((text) => text).join(' \u00b7 '), 'small');
    const addPlace = (cell, block, type) => {
      add(cell, 'div', blockName(blocks[block]));
      add(cell, 'div', texts[type], 'small');
    };
    addTable(detail, ['', 'operand', 'memory', 'values'], call[10].map(([name, block, type, written, values]) => [
      written ? 'writes' : 'reads', texts[name], (cell) => addPlace(cell, block, type),
      (cell) => addNumbers(cell, texts[values], texts[type])]));
    if (call[9] > call[10].length) add(detail, 'div', `and ${call[9] - call[10].length} operands more`, 'small');
    const kept = saved.filter((one) => one[0] <= at && (isOutside(blocks[one[1]]) ? at <= lastBackward
                                                                                  : blocks[one[1]][5] > call[7]));
    add(detail, 'h3', `Saved for the backward pass: ${kept.length}`);
    const read = new Set(call[5] ? call[10].map((operand) => operand[1]) : []);
    addTable(detail, ['kept by', 'memory', 'shape', 'version', 'released in'], kept.slice(0, 200).map((one) => {
      const block = blocks[one[1]], row = [texts[one[3]], blockName(block), texts[one[2]], one[4], texts[block[2]]];
      if (read.has(one[1]) || one[0] === at) row.style = 'here';
      return row;
    }));
    if (kept.length > 200) add(detail, 'div', `and ${kept.length - 200} more`, 'small');
    for (const box of boxes) box.classList.toggle('here', +box.dataset.box === call[8]);
    for (const attribute of ['x1', 'x2']) {
      cursor.setAttribute(attribute, xOf(call[7]));
      bar.setAttribute(attribute, (1000 * (begins[at] + call[6] / 2)) / (sum || 1));
    }
    scrollTo(at);
    const isPeak = call[7] <= peakTick && (at + 1 === calls.length || peakTick < calls[at + 1][7]);
    return phaseOf(at) + (isPeak ? ', most memory' : '');
  };
  const notes = data.notes.concat(data.left_out ? [`${data.left_out} calls more did not fit into this page`] : []);
  return {count: calls.length, what: 'call', show, notes};
}

function messagesPage(data, choose) {
  const {events, texts, ranks} = data, [SENDS, RECEIVES, FAILS] = [0, 1, 2];
  check(Array.isArray(events) && Array.isArray(texts) && Array.isArray(data.notes), 'a list is missing');
  check(texts.every((text) => typeof text === 'string') && isCount(ranks, 10000), 'the texts or ranks are wrong');
  const ends = new Map();  // for each message, the events that send and receive it
  events.forEach((event, i) => {
    check(Array.isArray(event) && event.length === 8 && isCount(event[0], 3) && isCount(event[1], ranks) &&
          isCount(event[2] + 1, ranks + 1) && isCount(event[3]) && isCount(event[5]) &&
          [event[4], event[6], event[7]].every((text) => isCount(text, texts.length)), 'an event is wrong');
    if (event[0] !== FAILS) ends.set(event[3], Object.assign(ends.get(event[3]) || {}, {[event[0]]: i}));
  });
  const nameOf = ([kind, rank, peer]) =>
    `rank ${rank} ` + (kind === FAILS ? 'fails' : (kind === SENDS ? 'sends to ' : 'receives from ') + peer);
  const scrollTo = addList(byId('list'), events.length, (row, i) => {
    row.textContent = `${i + 1} ${nameOf(events[i])}`;
    if (events[i][0] === FAILS) row.classList.add('backward');
  }, choose);

  // Time runs downwards, with a line for each rank and an arrow for each message. Later messages are pale.
  const LANE = 130, STEP = 22, AROUND = 12;
  const drawLanes = (at) => {
    const begin = Math.max(0, Math.min(at - AROUND, events.length - 2 * AROUND - 1));
    const end = Math.min(events.length, begin + 2 * AROUND + 1);
    byId('net').replaceChildren();
    const lanes = draw(byId('net'), 'svg', {width: LANE * ranks, height: STEP * (end - begin + 2)});
    const x = (rank) => LANE * (rank + 0.5), y = (i) => STEP * (i - begin + 1.5);
    const edge = (i) => Math.max(STEP / 2, Math.min(STEP * (end - begin + 1.5), y(i)));
    for (let rank = 0; rank < ranks; ++rank) {
      const failed = events.findIndex((event) => event[0] === FAILS && event[1] === rank);
      const until = failed >= 0 && failed <= at ? edge(failed) : STEP * (end - begin + 1.5);
      draw(lanes, 'text', {x: x(rank) - 22, y: 12}).textContent = 'rank ' + rank;
      draw(lanes, 'path', {d: `M${x(rank)} 18 V${until}`});
      if (failed >= begin && failed < end)
        draw(lanes, 'text', {x: x(rank) - 6, y: y(failed) + 5, opacity: failed <= at ? 1 : 0.25, class: 'backward'})
          .textContent = '\u2716';
    }
    for (const {[SENDS]: sent, [RECEIVES]: received} of ends.values()) {
      if (sent === undefined || sent >= end || (received === undefined ? sent : received) < begin) continue;
      const [, from, to] = events[sent], arrived = received !== undefined && received <= at;
      const share = arrived || sent > at ? 1 : 0.5;  // a message that has not arrived is drawn half the way
      const [x0, y0] = [x(from), edge(sent)], [x1, y1] = [x(to), edge(received === undefined ? sent + 1 : received)];
      const [x2, y2] = [x0 + share * (x1 - x0), y0 + share * (y1 - y0)], angle = Math.atan2(y1 - y0, x1 - x0);
      const tip = (turn) => `L${x2 - 8 * Math.cos(angle + turn)} ${y2 - 8 * Math.sin(angle + turn)}`;
      const here = sent === at || received === at ? 'here' : '';
      draw(lanes, 'path', {class: here, opacity: sent > at ? 0.3 : 1, 'stroke-dasharray': arrived ? '' : '4 3',
                           d: `M${x0} ${y0} L${x2} ${y2} ${tip(0.4)} M${x2} ${y2} ${tip(-0.4)}`});
      const values = texts[events[sent][7]];
      if (values.length > 8 || sent > at || sent < begin) continue;
      const [x3, y3] = [x0 + 0.25 * (x1 - x0) - 8, y0 + 0.25 * (y1 - y0) - 3];
      draw(lanes, 'text', {class: 'small', x: x3, y: y3}).textContent = values;
    }
  };

  const show = (at) => {
    const [kind, rank, peer, message, text, bytes, type, values] = events[at], detail = byId('detail');
    detail.replaceChildren();
    add(detail, 'h2', nameOf(events[at]));
    add(detail, 'div', texts[text]);
    if (kind !== FAILS) {
      const other = ends.get(message)[kind === SENDS ? RECEIVES : SENDS];
      const where = kind === SENDS ? 'received in event ' : 'sent in event ';
      const whereabouts = other === undefined ? 'never received' : where + (other + 1);
      add(detail, 'div', `message ${message + 1}, ${bytesOf(bytes)}, ${whereabouts}`, 'small');
      addNumbers(detail, texts[values], texts[type]);
    }
    const states = Array.from({length: ranks}, () => ({sent: 0, received: 0, last: '', failed: ''}));
    let underWay = 0;
    for (const event of events.slice(0, at + 1)) {
      const state = states[event[1]];
      if (event[0] === FAILS) state.failed = texts[event[4]];
      else if (event[0] === SENDS) state.sent += event[5], ++underWay;
      else state.received += event[5], --underWay, state.last = event;
    }
    add(detail, 'h3', `The ranks, and ${underWay} messages under way`);
    addTable(detail, ['rank', 'sent', 'received', 'received last'], states.map((state, number) => {
      const row = [number, bytesOf(state.sent), bytesOf(state.received), (cell) => {
        if (state.failed) add(cell, 'div', 'failed: ' + state.failed, 'backward');
        else if (state.last) addNumbers(cell, texts[state.last[7]], texts[state.last[6]]);
      }];
      if (number === rank) row.style = 'here';
      return row;
    })).id = 'ranks';
    drawLanes(at);
    scrollTo(at);
    return kind === FAILS ? nameOf(events[at]) : texts[text].split(' (')[0];
  };
  const notes = data.notes.concat(data.left_out ? [`${data.left_out} events more did not fit into this page`] : []);
  return {count: events.length, what: 'event', show, notes};
}

function open(data) {
  const pages = {step: stepPage, messages: messagesPage};
  check(data && Object.hasOwn(pages, data.kind), 'it is of no kind that this page knows');
  let at = -1;
  const choose = (number) => {
    number = Math.max(0, Math.min(page.count - 1, number));
    if (number === at || page.count === 0) return;
    at = number;
    const remark = page.show(at);
    byId('place').textContent = `${page.what} ${at + 1} of ${page.count}: ${remark}`;
    byId('slider').value = at + 1;
    history.replaceState(null, '', '#' + (at + 1));
  };
  const page = pages[data.kind](data, choose);
  byId('slider').max = Math.max(1, page.count);
  byId('slider').oninput = (event) => choose(+event.target.value - 1);
  const moves = {first: () => 0, back: () => at - 1, next: () => at + 1, last: () => page.count - 1};
  for (const id in moves) byId(id).onclick = () => choose(moves[id]());
  const keys = {Home: 'first', ArrowLeft: 'back', ArrowRight: 'next', End: 'last'};
  document.onkeydown = (event) => {
    if (!Object.hasOwn(keys, event.key) || event.target === byId('slider')) return;
    event.preventDefault();
    choose(moves[keys[event.key]]());
  };
  byId('message').hidden = true;
  byId('lab').hidden = false;
  if (page.count === 0) page.notes.push('nothing was recorded');
  for (const note of page.notes) add(byId('charts'), 'div', 'note: ' + note);
  const wanted = location.hash === '#last' ? page.count : parseInt(location.hash.slice(1), 10) || 1;
  choose(wanted - 1);
}

window.onerror = (message) => fail('This page does not work: ' + message);
document.addEventListener('DOMContentLoaded', () => {
  const block = byId('data');
  try {
    check(block, 'there is no recording in it');
    open(JSON.parse(block.textContent));
  } catch (error) {
    fail(`The recording in this file cannot be read (${error.message}): write the page again.`);
  }
});

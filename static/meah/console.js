// The live list of workers. The server tells what changed; this page keeps what it was told and draws the part of it
// that is in view. Texts are set as text, never as markup. Nothing is sent over the socket.
const ROW_PX = 46;
const SPARE_ROWS = 12;
const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 15000;

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("console-data").textContent);
const list = $("list");
const body = $("rows");
const filters = $("filters");

let workers = new Map(); // id -> row
let versions = new Map(); // id -> the entry that its row certainly shows
let order = []; // ids, newest first
let drawn = new Map(); // id -> <tr>
let partials = new Map(); // id -> text so far
let places = {};
let before = null;
let total = 0;
let seq = -1;
let chosen = new Set();
let selected = new URLSearchParams(location.search).get("selected");
let shownText = null; // what the pane has fetched
let paused = false;
let waiting = []; // messages that came while paused
let loading = null;
let retryMs = FIRST_RETRY_MS;

// -- what is known -----------------------------------------------------------------------------------------------

function take(page, anew) {
    if (anew) {
        // What was told while the page was on its way is newer than the page.
        const newer = [...workers.values()].filter((row) => versions.get(row.id) > page.seq && matches(row));
        workers = new Map(newer.map((row) => [row.id, row]));
        order = [...workers.keys()];
        seq = Math.max(seq, page.seq);
    }
    for (const row of page.rows) put(row, page.seq);
    before = page.before;
    total = page.total;
    places = page.queue;
    sort();
}

function put(row, at) {
    if ((versions.get(row.id) ?? -1) > at) return;
    versions.set(row.id, at);
    if (!workers.has(row.id)) order.push(row.id);
    workers.set(row.id, row);
}

function drop(id) {
    workers.delete(id);
    order = order.filter((other) => other !== id);
}

function sort() {
    order.sort((a, b) => workers.get(b).key - workers.get(a).key);
}

function matches(row) {
    const wanted = new FormData(filters);
    const state = wanted.get("state");
    const isState = !state || (state === "active" ? row.active : row.state === state);
    const label = wanted.get("label").trim().toLowerCase();
    return (
        isState &&
        (!wanted.get("role") || row.role === wanted.get("role")) &&
        (!wanted.get("provider") || row.provider === wanted.get("provider")) &&
        (!label || row.label.toLowerCase().includes(label))
    );
}

function change(rows, at) {
    const oldest = before === null ? -Infinity : before;
    for (const row of rows) {
        const known = workers.has(row.id);
        if ((versions.get(row.id) ?? -1) > at) continue;
        if (!matches(row)) {
            versions.set(row.id, at);
            if (known) {
                drop(row.id);
                total -= 1;
            }
            continue;
        }
        // What lies further down than this page has loaded comes with its page.
        if (!known && row.key < oldest) continue;
        if (!known) total += 1;
        put(row, at);
    }
    sort();
}

// -- the list ----------------------------------------------------------------------------------------------------

function cell(tag, ...parts) {
    const node = document.createElement(tag);
    node.append(...parts);
    return node;
}

function small(text) {
    const node = cell("span", text);
    node.className = "meah-id";
    return node;
}

function badge(row) {
    const symbol = cell("span", row.symbol);
    symbol.className = "meah-symbol";
    symbol.setAttribute("aria-hidden", "true");
    const node = cell("span", symbol, row.cancelling ? "stopping" : row.stateText);
    node.className = `meah-badge meah-${row.tone}`;
    return node;
}

function makeRow(id) {
    const tr = document.createElement("tr");
    tr.dataset.id = id;
    const box = document.createElement("input");
    box.type = "checkbox";
    box.name = "worker";
    box.value = id;
    box.checked = chosen.has(id);
    const link = document.createElement("a");
    const name = cell("th", link, small(""));
    name.scope = "row";
    tr.append(cell("td", box), cell("td"), name, cell("td"), cell("td"), cell("td"));
    return tr;
}

function setText(node, text) {
    if (node.textContent !== text) node.textContent = text;
}

function fillRow(tr, row) {
    const [pick, state, name, model, time, usage] = tr.children;
    pick.firstChild.setAttribute("aria-label", `Choose ${row.title}`);
    const mark = badge(row);
    if (!state.firstChild || !state.firstChild.isEqualNode(mark)) state.replaceChildren(mark);
    const link = name.firstChild;
    link.setAttribute("href", row.url);
    setText(link, row.title);
    setText(name.lastChild, row.principal);
    const where = `${row.provider}, ${row.role}`;
    if (model.textContent !== row.model + where) model.replaceChildren(row.model, small(where));
    setText(time, timeOf(row));
    const tokens = row.active ? "–" : row.tokens === null ? "unknown" : row.tokens.toLocaleString("en-US");
    const cost = row.active ? "" : (row.cost ?? "");
    if (usage.textContent !== tokens + cost) usage.replaceChildren(tokens, small(cost));
    tr.classList.toggle("meah-chosen", row.id === selected);
}

function draw() {
    const top = Math.max(0, Math.floor(list.scrollTop / ROW_PX) - SPARE_ROWS);
    const count = Math.ceil(list.clientHeight / ROW_PX) + 2 * SPARE_ROWS;
    const visible = order.slice(top, top + count);
    const wanted = new Set(visible);
    const focused = document.activeElement?.closest?.("#rows tr")?.dataset.id;
    if (focused && workers.has(focused) && !wanted.has(focused)) {
        // The row that holds the focus stays, wherever it has moved.
        if (order.indexOf(focused) < top) visible.unshift(focused);
        else visible.push(focused);
        wanted.add(focused);
    }
    for (const [id, tr] of drawn) {
        if (wanted.has(id)) continue;
        tr.remove();
        drawn.delete(id);
    }
    let next = body.firstElementChild;
    for (const id of visible) {
        let tr = drawn.get(id);
        if (!tr) {
            tr = makeRow(id);
            drawn.set(id, tr);
        }
        fillRow(tr, workers.get(id));
        if (tr === next) next = next.nextElementSibling;
        else body.insertBefore(tr, next);
    }
    spacer($("above"), top);
    spacer($("below"), Math.max(0, order.length - top - count));
    $("workers").setAttribute("aria-rowcount", String(total));
    setText($("shown"), String(order.length));
    setText($("total"), String(total));
    $("nothing").hidden = order.length > 0;
    $("older")?.remove();
    if (before !== null && top + count > order.length - SPARE_ROWS) more();
}

function spacer(tbody, rows) {
    if (!rows) {
        tbody.replaceChildren();
        return;
    }
    let td = tbody.querySelector("td");
    if (!td) {
        td = document.createElement("td");
        td.colSpan = 6;
        const tr = document.createElement("tr");
        tr.append(td);
        tbody.append(tr);
    }
    td.style.height = `${rows * ROW_PX}px`;
}

// A new row above the one that is looked at must not move it.
function keepingPlace(act) {
    const first = order[Math.floor(list.scrollTop / ROW_PX)];
    act();
    if (list.scrollTop > ROW_PX && first !== undefined) {
        const now = order.indexOf(first);
        if (now >= 0) list.scrollTop = now * ROW_PX + (list.scrollTop % ROW_PX);
    }
    draw();
}

function duration(ms) {
    if (ms === null || ms === undefined) return "–";
    if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
    const s = ms / 1000;
    return s < 60 ? `${s.toFixed(1)} s` : `${Math.floor(s / 60)} min ${String(Math.floor(s % 60)).padStart(2, "0")} s`;
}

function timeOf(row) {
    if (row.state === "queued") return places[row.id] ? `place ${places[row.id]}` : "waits";
    if (row.state === "running") {
        return `${duration(Date.now() - Date.parse(row.startedAt))} of ${duration(row.timeoutMs)}`;
    }
    return duration(row.durationMs);
}

// -- pages and filters -------------------------------------------------------------------------------------------

function query() {
    const wanted = new URLSearchParams();
    for (const [name, value] of new FormData(filters)) if (value.trim()) wanted.set(name, value.trim());
    return wanted;
}

async function rowsFrom(from) {
    const wanted = query();
    if (from !== null) wanted.set("before", from);
    const response = await fetch(`${data.rowsUrl}?${wanted}`, { headers: { Accept: "application/json" } });
    if (response.redirected) location.reload(); // logged out: the login page comes
    if (!response.ok) throw new Error(`the list answered ${response.status}`);
    return response.json();
}

async function more() {
    if (loading) return;
    const asked = String(query());
    loading = rowsFrom(before);
    try {
        const page = await loading;
        if (asked === String(query())) take(page, false);
    } catch {
        setTimeout(draw, LAST_RETRY_MS);
        return;
    } finally {
        loading = null;
    }
    draw();
}

async function anew() {
    try {
        const asked = String(query());
        const page = await rowsFrom(null);
        if (asked !== String(query())) return;
        take(page, true);
        list.scrollTop = 0;
        draw();
        pane();
    } catch {
        say("The list could not be read; trying again.", true);
        setTimeout(anew, 2 * FIRST_RETRY_MS);
    }
}

function onFilter(event) {
    event?.preventDefault();
    const wanted = query();
    if (selected) wanted.set("selected", selected);
    history.replaceState(null, "", wanted.size ? `?${wanted}` : location.pathname);
    anew();
}

// -- the pane beside the list ------------------------------------------------------------------------------------

function select(id) {
    selected = id;
    shownText = null;
    const wanted = query();
    wanted.set("selected", id);
    history.replaceState(null, "", `?${wanted}`);
    draw();
    pane();
}

function pane() {
    const row = selected ? (workers.get(selected) ?? shownText) : null;
    $("pane").hidden = !selected || !row;
    if (selected && (!shownText || (row && shownText.state !== row.state))) fetchText(selected);
    if (!row) return;
    setText($("pane-heading"), row.title);
    const mark = badge(row);
    if (!$("pane-state").firstChild?.isEqualNode(mark)) $("pane-state").replaceChildren(mark);
    setText($("pane-time"), timeOf(row));
    const progress = $("pane-progress");
    progress.hidden = row.state !== "running";
    if (!progress.hidden) progress.value = Math.min(100, ((Date.now() - Date.parse(row.startedAt)) / row.timeoutMs) * 100);
    $("pane-error").hidden = !row.error;
    setText($("pane-error"), row.error);
    const text = row.active ? (partials.get(row.id) ?? shownText?.text ?? "") : (shownText?.text ?? "");
    grow($("pane-text"), text || emptyText(row));
    const usage = [
        row.role,
        `${row.model} at ${row.provider}`,
        ...(row.active ? [] : [row.tokens === null ? "tokens unknown" : `${row.tokens.toLocaleString("en-US")} tokens`]),
        ...(row.cost ? [row.cost] : []),
    ];
    setText($("pane-usage"), usage.join(" · "));
    setText($("pane-task"), shownText?.task ?? "");
    $("pane-open").href = row.url;
    const page = row.url.replace(/change\/$/, "");
    button("pane-cancel", row.active && !row.cancelling, `${page}cancel/`);
    button("pane-rerun", !row.active, `${page}rerun/`);
    const edit = $("pane-edit");
    if (edit) {
        edit.hidden = row.active;
        edit.href = `${edit.dataset.url}?from=${encodeURIComponent(row.id)}&next=console`;
    }
}

function button(id, isShown, action) {
    const form = $(id);
    if (!form) return;
    form.hidden = !isShown;
    form.setAttribute("action", action);
}

function emptyText(row) {
    if (row.state === "queued") return "It waits for its turn.";
    if (row.state === "running") return "Nothing yet: the model is thinking, or the provider does not stream.";
    return shownText ? (shownText.purged ? "Its texts were purged." : "There is no answer.") : "…";
}

// Appending keeps the place and the selection of whoever reads; the end stays in view for whoever is there.
function grow(node, text) {
    if (node.textContent === text) return;
    const isAtEnd = node.scrollHeight - node.scrollTop - node.clientHeight < 24;
    if (text.startsWith(node.textContent) && node.textContent) node.append(text.slice(node.textContent.length));
    else node.textContent = text;
    node.normalize();
    if (isAtEnd) node.scrollTop = node.scrollHeight;
}

async function fetchText(id) {
    if (fetchText.of === id) return;
    fetchText.of = id;
    try {
        const response = await fetch(`${data.rowsUrl}${encodeURIComponent(id)}/`);
        if (response.ok && selected === id) shownText = await response.json();
        else if (response.status === 404 && selected === id) selected = null;
    } catch {
        setTimeout(pane, 2 * FIRST_RETRY_MS);
        return;
    } finally {
        fetchText.of = null;
    }
    if (selected === id) pane();
}

// -- what the server tells ---------------------------------------------------------------------------------------

function hear(message) {
    if (message.type === "welcome") {
        waiting = [];
        partials = new Map(Object.entries(message.partials));
        if (message.anew) {
            seq = message.seq;
            anew();
        } else changed(message);
        if (message.servers) showServers(message.servers);
    } else if (message.type === "changes") changed(message);
    else if (message.type === "partial") {
        const known = partials.get(message.id) ?? "";
        partials.set(message.id, known.slice(0, message.at) + message.text);
        if (message.id === selected) pane();
    } else if (message.type === "servers") showServers(message.servers);
}

function changed(message) {
    seq = Math.max(seq, message.seq);
    places = message.queue;
    keepingPlace(() => change(message.rows, message.seq));
    for (const row of message.rows) if (!row.active) partials.delete(row.id);
    if (message.held) showHeld(message.held);
    if (message.rows.some((row) => row.id === selected)) pane();
}

function showHeld(held) {
    if (!$("held")) return;
    setText($("held-count"), String(held.count));
    const mark = $("meah-waiting");
    if (mark) {
        setText(mark, String(held.count));
        mark.parentElement.hidden = held.count === 0;
    }
    $("held-none").hidden = held.count > 0;
    lines($("held"), held.first, (request) => {
        const link = cell("a", request.tool);
        link.href = request.url;
        return [link, small(request.principal)];
    });
}

function showServers(servers) {
    if (!$("servers")) return;
    $("servers-none").hidden = servers.length > 0;
    lines($("servers"), servers, (server) => {
        const link = cell("a", server.name);
        link.href = server.url;
        return [badge({ ...server, stateText: server.state }), " ", link, ...(server.error ? [small(server.error)] : [])];
    });
}

// Lines that did not change stay the same nodes, so that a link keeps its focus.
function lines(ul, items, parts) {
    const fresh = items.map((item) => cell("li", ...parts(item)));
    fresh.forEach((li, index) => {
        const old = ul.children[index];
        if (!old) ul.append(li);
        else if (!old.isEqualNode(li)) old.replaceWith(li);
    });
    while (ul.children.length > fresh.length) ul.lastElementChild.remove();
}

// -- the connection ----------------------------------------------------------------------------------------------

function say(text, isAway) {
    setText($("connection"), text);
    $("connection").classList.toggle("meah-away", Boolean(isAway));
}

function connect() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}${data.socket}?after=${seq}`);
    socket.onmessage = (event) => {
        retryMs = FIRST_RETRY_MS;
        const message = JSON.parse(event.data);
        if (message.type === "welcome") say("Live.");
        if (paused && message.type !== "welcome") waiting.push(message);
        else hear(message);
    };
    socket.onclose = (event) => {
        if (event.code === 4403) {
            say("You are logged out, or may not see workers any more. Load the page again.", true);
            return;
        }
        say("The connection is lost. The page comes back by itself.", true);
        setTimeout(connect, retryMs * (0.75 + Math.random() / 2));
        retryMs = Math.min(LAST_RETRY_MS, retryMs * 2);
    };
}

function onPause() {
    paused = !paused;
    $("pause").setAttribute("aria-pressed", String(paused));
    setText($("pause"), paused ? "Resume" : "Pause");
    say(paused ? "Paused: what is new is shown when you resume." : "Live.");
    if (paused) return;
    const told = waiting;
    waiting = [];
    for (const message of told) hear(message);
}

function tick() {
    if (!paused && !document.hidden) {
        for (const [id, tr] of drawn) if (workers.get(id)?.active) setText(tr.children[4], timeOf(workers.get(id)));
        const row = selected && workers.get(selected);
        if (row?.active) pane();
    }
}

// -- begin -------------------------------------------------------------------------------------------------------

take(data, true);
body.replaceChildren();
draw();
if (selected) pane();
list.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
addEventListener("resize", draw);
filters.addEventListener("submit", onFilter);
filters.addEventListener("change", onFilter);
$("filter-button").hidden = true;
body.addEventListener("change", (event) => {
    if (event.target.name !== "worker") return;
    if (event.target.checked) chosen.add(event.target.value);
    else chosen.delete(event.target.value);
});
body.addEventListener("click", (event) => {
    // A plain click on a name opens the pane; the modified one goes to the page, as links do.
    const link = event.target.closest("a");
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    select(link.closest("tr").dataset.id);
});
$("chosen").addEventListener("submit", () => {
    // Ticked rows that are scrolled out of view are not in the document: they go along all the same.
    for (const id of chosen) {
        if (drawn.has(id)) continue;
        const hidden = document.createElement("input");
        Object.assign(hidden, { type: "hidden", name: "worker", value: id });
        $("chosen").append(hidden);
    }
});
$("pause").hidden = false;
$("pause").addEventListener("click", onPause);
setInterval(tick, 500);
connect();

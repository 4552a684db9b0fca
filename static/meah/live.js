// Keeps the page of a worker current while it is queued or running: fetches the same page every two seconds and puts
// its marked parts in place of the old ones. Without a script the page is right when it is loaded.
"use strict";
const page = document.querySelector("[data-live-active]");
const EVERY_MS = 2000;
let paused = false;

function openParts() {
    return new Set([...document.querySelectorAll("details[open][id]")].map((part) => part.id));
}

function replacePart(fresh) {
    const old = document.getElementById(fresh.id);
    // Forms carry a token that is new each time, so parts with forms say themselves what they depend on.
    if (!old || (fresh.dataset.key ? old.dataset.key === fresh.dataset.key : old.isEqualNode(fresh))) return;
    const focused = document.activeElement?.id;
    const open = openParts();
    old.replaceWith(document.adoptNode(fresh));
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

function isSelecting() {
    const selection = getSelection();
    return !selection.isCollapsed && page.contains(selection.anchorNode);
}

async function look() {
    if (!paused && !document.hidden && !isSelecting()) {
        const response = await fetch(page.dataset.liveUrl, { headers: { Accept: "text/html" } });
        if (!response.ok || response.redirected) throw new Error("not there");
        const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
        const freshPage = fresh.querySelector("[data-live-active]");
        const before = document.getElementById("live-state").textContent.trim().replace(/\s+/g, " ");
        for (const part of fresh.querySelectorAll("[data-live]")) replacePart(part);
        const after = document.getElementById("live-state").textContent.trim().replace(/\s+/g, " ");
        if (after !== before) document.getElementById("live-status").textContent = after;
        page.dataset.liveActive = freshPage.dataset.liveActive;
        showPause();
    }
    if (page.dataset.liveActive === "true") setTimeout(tick, EVERY_MS);
}

function tick() {
    // A server that is away for a moment must not end it.
    look().catch(() => setTimeout(tick, 2 * EVERY_MS));
}

function showPause() {
    const button = document.getElementById("live-pause");
    if (!button) return;
    button.hidden = false;
    button.textContent = paused ? "Resume updates" : "Pause updates";
    button.setAttribute("aria-pressed", String(paused));
    document.getElementById("live-reload").hidden = !paused;
    button.onclick = () => {
        paused = !paused;
        showPause();
    };
}

if (page?.dataset.liveActive === "true") {
    showPause();
    setTimeout(tick, EVERY_MS);
}

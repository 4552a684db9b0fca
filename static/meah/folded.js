// Long values come opened, so that without a script everything is there to be read. With one they are folded, and what
// needs all of them opened stays off until they were.
"use strict";
const folded = [...document.querySelectorAll("details[data-long]")];
const button = document.querySelector("[data-needs-opened]");
const unseen = new Set(folded);

function show() {
    if (!button) return;
    button.disabled = unseen.size > 0;
    const left = unseen.size === 1 ? "one folded value" : `${unseen.size} folded values`;
    document.getElementById("needs-opened").textContent = unseen.size ? `Open ${left} above first.` : "";
}

for (const part of folded) {
    part.open = false;
    part.addEventListener("toggle", () => {
        if (part.open) unseen.delete(part);
        show();
    });
}
show();

// Shows the copy buttons (they need a script) and makes them work.
"use strict";
for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
        const source = document.getElementById(button.dataset.copy);
        try {
            await navigator.clipboard.writeText(source.textContent);
            button.textContent = "Copied";
        } catch {
            // No right to the clipboard: select it, so that Ctrl-C copies it.
            getSelection().selectAllChildren(source);
            button.textContent = "Selected: press Ctrl-C";
        }
    });
}

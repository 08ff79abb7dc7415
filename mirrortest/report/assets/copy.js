// Buttons that copy the command next to them; without scripts there are none.
"use strict";
document.querySelectorAll(".command").forEach((command) => {
  const [code, button] = [command.querySelector("code"), command.querySelector("button")];
  const mark = () => {
    const all = document.createRange();
    all.selectNodeContents(code);
    const selection = window.getSelection();
    selection.removeAllRanges();
    selection.addRange(all);
  };
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      // Some browsers forbid it to a file: the text is selected, for the keyboard.
      mark();
      button.textContent = "Selected";
    }
    setTimeout(() => {
      button.textContent = "Copy";
    }, 2000);
  });
});

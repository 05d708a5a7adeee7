// Keys of the labelling queue: a control with data-key is pressed by that key, unless something is being typed.
"use strict";
document.addEventListener("keydown", (event) => {
  const target = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || target.matches("input:not([type=radio]), textarea, select")) return;
  const control = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (control) {
    event.preventDefault();
    control.click();
  }
});

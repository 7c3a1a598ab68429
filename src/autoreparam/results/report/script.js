"use strict";
(() => {
  const tip = document.getElementById("tip");

  function show(cell) {
    document.querySelectorAll(".here").forEach((old) => old.classList.remove("here"));
    cell.classList.add("here");
    tip.textContent = cell.dataset.tip;
    tip.hidden = false;
    place(cell);
  }

  function place(cell) {
    const box = cell.getBoundingClientRect();
    const left = Math.min(box.left, window.innerWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 6;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = (above > 0 ? above : box.bottom + 6) + "px";
  }

  function hide() {
    document.querySelectorAll(".here").forEach((old) => old.classList.remove("here"));
    tip.hidden = true;
  }

  document.addEventListener("pointerover", (event) => {
    if (event.target.dataset && event.target.dataset.tip) show(event.target);
    else hide();
  });
  document.addEventListener("scroll", () => {
    const cell = document.querySelector(".here");
    if (cell) place(cell);
  }, { passive: true, capture: true });

  function columns(grid) {
    return getComputedStyle(grid).gridTemplateColumns.split(" ").length;
  }

  document.querySelectorAll(".heat").forEach((grid) => {
    const cells = grid.children;
    let at = -1;
    grid.addEventListener("keydown", (event) => {
      const step = {
        ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns(grid), ArrowUp: -columns(grid),
        Home: -cells.length, End: cells.length,
      }[event.key];
      if (event.key === "Escape") hide();
      if (step === undefined) return;
      event.preventDefault();
      at = at < 0 ? 0 : Math.max(0, Math.min(cells.length - 1, at + step));
      cells[at].scrollIntoView({ block: "nearest", inline: "nearest" });
      show(cells[at]);
    });
    grid.addEventListener("blur", hide);
  });
})();

// Sets light or dark before anything is drawn; without a choice the system's is taken.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("pybroker-theme");
  } catch {
    // the browser keeps nothing: the system's theme it is
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();

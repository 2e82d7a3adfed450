// Choices that the browser keeps for the user; without storage they last as long as the page.

const PREFIX = "pybroker-";

export function read(name) {
  try {
    return localStorage.getItem(PREFIX + name) ?? "";
  } catch {
    return "";
  }
}

export function write(name, value) {
  try {
    if (value === "") localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, value);
  } catch {
    // the browser keeps nothing: the choice holds until the page is closed
  }
}

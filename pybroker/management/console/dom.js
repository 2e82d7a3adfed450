// A small virtual DOM: pages describe all that they show, and `patch` changes what is different in the document. So a
// refresh keeps focus, selection, scroll positions and what is being typed.
//
// Text is always a text node, and attributes are set by name: nothing is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "indeterminate"]);
const NODE = Symbol("the description that an element was made from");

/** Describe an element. Properties: attributes; `key` among its siblings; `on…` listeners; `ref`, called with the new
 *  element; `style`, an object; `opaque`: its children are left alone. */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: shown(children) };
}

/** Make the children of an element what is described. */
export function patch(parent, ...children) {
  const focused = document.activeElement;
  reconcile(parent, shown(children));
  if (focused !== document.activeElement && focused?.isConnected && parent.contains(focused)) {
    focused.focus({ preventScroll: true });
  }
}

function shown(children) {
  return children
    .flat(Infinity)
    .filter((each) => each !== null && each !== undefined && each !== "" && typeof each !== "boolean");
}

function reconcile(parent, wanted) {
  const unused = new Set(parent.childNodes);
  const keyed = new Map();
  const free = [];
  for (const node of unused) {
    const key = node[NODE]?.props?.key;
    if (key === undefined) free.push(node);
    else if (!keyed.has(key)) keyed.set(key, node);
  }
  const nodes = wanted.map((description) => {
    let node = null;
    if (description.props?.key !== undefined) {
      node = keyed.get(description.props.key) ?? null;
      if (node && (!unused.has(node) || !fits(node, description))) node = null;
    } else {
      const index = free.findIndex((each) => fits(each, description));
      if (index >= 0) node = free.splice(0, index + 1).at(-1);
    }
    if (!node) return create(description, parent);
    unused.delete(node);
    update(node, description);
    return node;
  });
  for (const node of unused) node.remove();
  let next = parent.firstChild;
  for (const node of nodes) {
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
}

function fits(node, description) {
  return description.tag ? node[NODE]?.tag === description.tag : node.nodeType === Node.TEXT_NODE;
}

function create(description, parent) {
  if (!description.tag) return document.createTextNode(String(description));
  const isSvg = description.tag === "svg" || (parent.namespaceURI === SVG && parent.localName !== "foreignObject");
  const node = isSvg ? document.createElementNS(SVG, description.tag) : document.createElement(description.tag);
  for (const [name, value] of Object.entries(description.props)) {
    if (!PROPERTIES.has(name)) set(node, name, value, undefined);
  }
  node[NODE] = description;
  if (!description.props.opaque) reconcile(node, description.children);
  for (const name of PROPERTIES) {
    if (name in description.props) node[name] = description.props[name]; // a select has its options now
  }
  description.props.ref?.(node);
  return node;
}

function update(node, description) {
  if (!description.tag) {
    const text = String(description);
    if (node.data !== text) node.data = text;
    return;
  }
  const former = node[NODE].props;
  const props = description.props;
  node[NODE] = description;
  for (const name of Object.keys(former)) {
    if (!(name in props) && !PROPERTIES.has(name)) set(node, name, undefined, former[name]);
  }
  for (const [name, value] of Object.entries(props)) {
    if (!PROPERTIES.has(name)) set(node, name, value, former[name]);
  }
  if (!props.opaque) reconcile(node, description.children);
  if ("value" in props && props.value !== former.value) node.value = props.value;
  for (const name of ["checked", "indeterminate"]) {
    if (name in props && node[name] !== props[name]) node[name] = props[name];
  }
}

function set(node, name, value, former) {
  if (name === "key" || name === "ref" || name === "opaque") return;
  if (name.startsWith("on")) {
    if (former === undefined) node.addEventListener(name.slice(2), heard);
    return;
  }
  if (name === "style") {
    for (const each of Object.keys(former ?? {})) if (!(each in (value ?? {}))) node.style.removeProperty(each);
    for (const [each, wanted] of Object.entries(value ?? {})) node.style.setProperty(each, wanted);
    return;
  }
  if (value === former) return;
  if (value === false || value === null || value === undefined) node.removeAttribute(name);
  else if (name === "href") node.setAttribute(name, address(value));
  else node.setAttribute(name, value === true ? "" : String(value));
}

/** Return an address that runs nothing: a place in the console, or a page. */
function address(value) {
  const { protocol } = new URL(value, document.baseURI);
  if (protocol !== "http:" && protocol !== "https:") throw new Error(`no address for a link: ${value}`);
  return value;
}

function heard(event) {
  return this[NODE]?.props[`on${event.type}`]?.call(this, event);
}

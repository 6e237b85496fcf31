/** The one element that a selector names. */
export function find<T extends Element = HTMLElement>(selector: string, root: ParentNode = document): T {
  const found = root.querySelector<T>(selector);
  if (!found) throw new Error(`the page lacks ${selector}`);
  return found;
}

/** A new element with properties and children. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K, properties: Partial<HTMLElementTagNameMap[K]> = {}, ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

/** Offer bytes as a file to keep. */
export function save(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  make('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** The options of a select, the one chosen kept where it is still there. */
export function fill(select: HTMLSelectElement, options: [value: string, text: string][]): void {
  const before = select.value;
  select.replaceChildren(...options.map(([value, text]) => make('option', { value }, text)));
  if (options.some(([value]) => value === before)) select.value = before;
}

/** A number as people read it. */
export const told = (value: number, digits = 3): string =>
  value.toLocaleString('en', { maximumSignificantDigits: digits });

/** Once what was drawn is on the screen; a tab in the background does not wait for long. */
export const seen = (): Promise<unknown> => Promise.race([
  new Promise(requestAnimationFrame), new Promise((then) => { setTimeout(then, document.hidden ? 0 : 8000); })]);

/** Run `then` once nothing has happened for a while. */
export function later(milliseconds: number, then: () => void): () => void {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(then, milliseconds);
  };
}

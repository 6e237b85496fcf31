/** Elements: found, made, filled. */

type Tags = HTMLElementTagNameMap;
type Tag<S extends string> = S extends `${string} ${infer Rest}` ? Tag<Rest> : S extends `${infer Name}.${string}` ? Name : S;
type Found<S extends string> = Tag<S> extends keyof Tags ? Tags[Tag<S>] : HTMLElement;

/** The element that a selector names, of the type of the tag that it names: `input.seed`. */
export function find<S extends string>(selector: S, root: ParentNode = document): Found<S> {
  const found = root.querySelector<Found<S>>(selector);
  if (!found) throw new Error(`the page lacks ${selector}`);
  return found;
}

/** A new element with properties and children; `style` is text. */
export function make<K extends keyof Tags>(
  tag: K, properties: Partial<Omit<Tags[K], 'style'>> & { style?: string } = {}, ...children: (Node | string)[]
): Tags[K] {
  const node = document.createElement(tag);
  Object.assign(node, properties).append(...children);
  return node;
}

/** Put text or elements into the elements of these classes. */
export function put(root: ParentNode, parts: Record<string, string | Node | Node[]>): void {
  for (const [name, part] of Object.entries(parts)) find(`.${name}`, root).replaceChildren(...[part].flat());
}

/** A row of a table. */
export const row = (cells: (Node | string)[], className = ''): HTMLTableRowElement =>
  make('tr', { className }, ...cells.map((cell) => (cell instanceof HTMLTableCellElement ? cell : make('td', {}, cell))));

/** Names and what belongs to them, for a `dl`. */
export const facts = (pairs: [name: string, text: string][]): HTMLElement[] =>
  pairs.flatMap(([name, text]) => [make('dt', {}, name), make('dd', {}, text)]);

/** The options of a select after any that is empty, the one chosen kept where it is still there. */
export function fill(select: HTMLSelectElement, names: string[]): void {
  const before = select.value;
  const empty = [...select.options].filter((option) => !option.value);
  select.replaceChildren(...empty, ...names.map((name) => new Option(name)));
  if (names.includes(before)) select.value = before;
}

/** Offer bytes as a file to keep. */
export const save = (content: Blob, download: string): void =>
  make('a', { href: URL.createObjectURL(content), download }).click();

/** A number as people read it. */
export const told = (value: number, maximumSignificantDigits = 3): string =>
  value.toLocaleString('en', { maximumSignificantDigits });

/** Rows and columns that an arrow key goes. */
export const ARROWS: Record<string, [rows: number, columns: number]> =
  { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

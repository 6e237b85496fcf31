/** Calls to the service: the key, its problems, its streams. */
import { find } from './dom.js';

export interface Finding { severity: string; code: string; file: string; what: string; fix: string }

/** What the service refuses, as it says it. */
export class Problem extends Error {
  constructor(readonly title: string, detail: string, readonly code: string, readonly findings: Finding[] = []) {
    super(detail);
  }

  static async of(answer: Response): Promise<Problem> {
    const said = await answer.json().catch(() => ({}));
    const wait = answer.headers.get('Retry-After');
    const again = wait ? ` Try again in ${wait} s.` : '';
    const detail = (said.detail ?? `The service answered ${answer.status}.`) + again;
    return new Problem(said.title ?? 'error', detail, said.code ?? `${answer.status}`, said.findings);
  }
}

const SLOT = 'caps-med-key';
let asking: Promise<boolean> | undefined;

/** Whether a key was entered in this tab. */
export const holdsKey = (): boolean => sessionStorage.getItem(SLOT) !== null;
export const forgetKey = (): void => sessionStorage.removeItem(SLOT);

/** Ask for a key, once however many calls need it. */
function askForKey(why: string): Promise<boolean> {
  asking ??= new Promise<boolean>((answered) => {
    const dialog = find<HTMLDialogElement>('#key');
    find('.why', dialog).textContent = why;
    const field = find<HTMLInputElement>('input', dialog);
    dialog.returnValue = '';
    dialog.addEventListener('close', () => {
      if (dialog.returnValue === 'ok') sessionStorage.setItem(SLOT, field.value.trim());
      field.value = '';
      asking = undefined;
      answered(dialog.returnValue === 'ok');
      document.dispatchEvent(new Event('key'));
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

/** One call; what is refused is thrown as a `Problem`. Paths are relative, so that a proxy may add a prefix. */
export async function call(path: string, init: RequestInit = {}): Promise<Response> {
  const key = sessionStorage.getItem(SLOT);
  const headers = new Headers(init.headers);
  if (key) headers.set('Authorization', `Bearer ${key}`);
  const answer = await fetch(path, { ...init, headers }).catch((error: unknown) => {
    if (init.signal?.aborted) throw error;
    throw new Problem('no answer', 'The service does not answer. Does it still run? Start it with: caps-med serve', 'offline');
  });
  if (answer.ok) return answer;
  const problem = await Problem.of(answer);
  if (answer.status === 401 && (await askForKey(key ? 'The key is unknown or was revoked.' : ''))) return call(path, init);
  throw problem;
}

export const json = async <T>(path: string, signal?: AbortSignal): Promise<T> =>
  (await call(path, { signal: signal ?? null })).json() as Promise<T>;

/** POST a form; what is undefined or empty is left out. */
export function post(
  path: string, fields: Record<string, Blob | string | number | undefined>, signal?: AbortSignal,
): Promise<Response> {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined && value !== '') form.append(name, typeof value === 'number' ? `${value}` : value);
  }
  return call(path, { method: 'POST', body: form, signal: signal ?? null });
}

/** Server-sent events by fetch, which unlike EventSource can send a key. */
export async function* events(path: string, signal: AbortSignal): AsyncGenerator<[name: string, data: unknown]> {
  const body = (await call(path, { signal })).body;
  if (!body) return;
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split('\n\n');
    rest = blocks.pop() ?? '';
    for (const block of blocks) {
      const event = parsed(block);
      if (event) yield event;
    }
  }
}

/** One block of an event stream; undefined for a comment. */
export function parsed(block: string): [name: string, data: unknown] | undefined {
  const field = (name: string) => block.split('\n').find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
  const name = field('event');
  return name === undefined ? undefined : [name, JSON.parse(field('data') ?? '{}')];
}

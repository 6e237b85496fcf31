/** Calls to the service: the key, its problems, its streams. */
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { withChoices } from './choices.js';
import { note, storage } from './tab.js';

export interface Finding { severity: string; code: string; file: string; what: string; fix: string }

/** What the service refuses, as it says it. */
export class Problem extends Error {
  /** `members`: what else the problem document says. */
  constructor(readonly title: string, detail: string, readonly code = '', readonly findings: Finding[] = [], readonly members: Record<string, unknown> = {}) {
    super(detail);
  }

  /** Whether it may be otherwise another time: there was no answer, a key was missing, or there was too much to do. */
  get passes(): boolean {
    return !this.code || [401, ...BUSY].includes(Number(this.members.status));
  }

  /** Whether it is about the file that was sent: another file may be taken. */
  get ofFile(): boolean {
    return this.code === UNREADABLE || OF_FILES.includes(Number(this.members.status));
  }

  static async of(answer: Response): Promise<Problem> {
    const { status } = answer;
    const said = (await answer.json().catch(() => undefined)) ?? {};
    const wait = secondsIn(answer);
    const [title, detail] = OTHERS[status] ?? ['error', `The service answered ${status}.`];
    const told: string = said.detail ?? detail;
    const again = wait && !/try again in/i.test(told) ? `${/[.!?]$/.test(told) ? '' : '.'} Try again in ${wait} s.` : '';
    return new Problem(said.title ?? title, told + again, said.code ?? (status < 500 ? `http_${status}` : ''), said.findings, { ...said, status });
  }
}

/** What an answer says that is no problem document: a proxy has given it. */
const OTHERS: Record<number, [title: string, detail: string]> = {
  413: ['too large', 'This is larger than a proxy before the service accepts (413).'],
};
/** A proxy's answers in place of a service that it does not reach. */
const UNREACHED = [502, 503, 504];

/** How long an answer asks to wait, which it may tell as a date; 0 if it does not. */
function secondsIn({ headers }: Response): number {
  const told = headers.get('Retry-After') ?? '';
  return Math.max(0, Math.ceil(Number(told) || (Date.parse(told) - Date.now()) / 1000 || 0));
}

const SLOT = 'caps-med-key';

/** The key of this tab. */
class Key {
  text = $state(storage().getItem(SLOT) ?? '');
  /** Why one is asked for; undefined while none is. */
  asked = $state<string>();
  /** Whether one is needed and nobody wanted to give one: then no call asks any more. */
  refused = $state(false);
  /** End the asking, with a key or without. */
  give: (text: string) => void = () => undefined;
  private asking: Promise<boolean> | undefined;

  /** Ask for one, once however many calls need it; whether one was given. */
  ask(why: string): Promise<boolean> {
    if (this.refused) return Promise.resolve(false);
    this.asking ??= new Promise((answered) => {
      this.asked = why;
      this.give = (text) => {
        this.asking = this.asked = undefined;
        this.refused = text === '';
        if (text) note(SLOT, text);
        this.text = text || this.text;
        answered(text !== '');
      };
    });
    return this.asking;
  }

  /** Ask because somebody wants to give one now. */
  enter(): void {
    this.refused = false;
    void this.ask('');
  }

  forget(): void {
    storage().removeItem(SLOT);
    location.reload();
  }
}
export const key = new Key();

const UNREADABLE = 'unreadable_file';
const OF_FILES = [409, 412, 413, 415, 422]; // too large, of no known format, broken, or in the way of another one
const BUSY = [429, 503]; // answers of a service that starts or has too much to do
const LONGEST = 30; // seconds; a service that asks for more is not just busy
const PATIENCE = 60; // seconds that one call waits in all
/** How the service is: how many calls wait because it is busy, whether it did not answer the last one, and how often it was found again after that. */
export const service = $state({ waiting: 0, silent: false, found: 0 });
/** For effects that read from the service: they do so again with another key, or once a silent service is found again. */
export const renewed = (): void => { void [key.text, service.found]; };

/** Some seconds, or less if they are not wanted any more. */
export async function pause(seconds: number, signal?: AbortSignal | null): Promise<void> {
  await new Promise<void>((then) => {
    const timer = setTimeout(then, signal?.aborted ? 0 : 1000 * seconds);
    signal?.addEventListener('abort', () => { clearTimeout(timer); then(); }, { once: true });
  });
  signal?.throwIfAborted();
}

/** Refuse files that the browser cannot read (any more). */
export async function checkReadable(parts: Iterable<unknown>): Promise<void> {
  for (const file of parts) {
    if (file instanceof Blob) await file.slice(0, 1).arrayBuffer().catch(() => {
      throw new Problem('unreadable file', `The browser cannot read ${file instanceof File ? file.name : 'the file'}: it is a folder, is not readable, or was changed, moved or deleted; choose it again`, UNREADABLE);
    });
  }
}

type Init = RequestInit & { headers?: Record<string, string> };
function silence(why: string): never {
  service.silent = true;
  throw new Problem('no answer', why);
}
/** What is thrown where a connection was not made, or has broken off. */
const lost = ({ signal, body }: Init) => async (error: unknown): Promise<never> => {
  if (signal?.aborted) throw error;
  await checkReadable(body instanceof FormData ? body.values() : [body]); // then the browser has sent nothing
  return silence('The service is not responding. Is it still running? Start it with: caps-med serve');
};
const HTML = 'text/html';
/** Whether it is a page that nobody has asked for. */
const isForeign = ({ headers }: Response, { headers: { Accept } = {} }: Init) => Accept !== HTML && headers.get('Content-Type')?.startsWith(HTML);

/** An answer that is lost if it breaks off while it is read, or holds nothing where a file is wanted. */
function guarded(answer: Response, init: Init): Response {
  const read = (how: 'blob' | 'bytes' | 'json') => async () => {
    const found = await Response.prototype[how].call(answer).catch(lost(init));
    return found?.size === 0 || found?.length === 0 ? silence('The answer is empty: something between this browser and the service may have cut it off. Try again.') : found;
  };
  return Object.assign(answer, { blob: read('blob'), bytes: read('bytes'), json: read('json') });
}

/**
 * One call; what is refused is thrown as a `Problem`, after a while if the service says when to try again.
 * Paths are relative, so that a proxy may add a prefix. `waited`: seconds for which it was tried already.
 */
export async function call(path: string, init: Init = {}, waited = 0): Promise<Response> {
  const { text } = key;
  const answer = await fetch(path, { ...init, headers: { ...init.headers, ...(text && { Authorization: `Bearer ${text}` }) } }).catch(lost(init));
  if (answer.ok && isForeign(answer, init)) silence('Something between this browser and the service has answered, such as the page of a login. Reload this page.');
  service.silent = false;
  if (answer.ok) return guarded(answer, init);
  const later = BUSY.includes(answer.status) ? secondsIn(answer) : 0;
  if (later > 0 && later <= LONGEST && waited + later <= PATIENCE) {
    service.waiting += 1;
    await pause(later, init.signal).finally(() => { service.waiting -= 1; });
    return call(path, init, waited + later);
  }
  const problem = await Problem.of(answer);
  if (UNREACHED.includes(answer.status) && !problem.code) silence(`A proxy before the service does not reach it (${answer.status}). Is it still running?`);
  const renewed = () => key.text !== text || key.ask(text ? 'The key is unknown or was revoked.' : '');
  if (answer.status === 401 && (await renewed())) return call(path, init, waited);
  throw problem;
}

/** For what is asked for by the address of this page, which may contain any word in place of an id. */
export const inAddress = (what: string) => (error: unknown): never => {
  const malformed = error instanceof Problem && error.members.status === 422;
  throw malformed ? new Problem('not found', `The ${what} in the address of this page does not exist.`, 'not_found', [], { status: 404 }) : error;
};

export const json = async <T>(path: string, signal?: AbortSignal): Promise<T> => (await call(path, { signal: signal ?? null })).json();

/** POST a form, with what was chosen of its files; what is undefined or empty is left out, a list gives a part for each of its elements. */
export function post(path: string, fields: object, signal?: AbortSignal, headers: Record<string, string> = {}): Promise<Response> {
  const body = new FormData();
  const parts = Object.entries(fields).flatMap(([name, value]) => [value].flat().map((one) => [name, one]));
  for (const [name, value] of parts) if (value !== undefined && value !== '') body.append(name, value);
  return call(withChoices(path, parts.map(([, value]) => value)), { method: 'POST', body, headers, signal: signal ?? null });
}

/** An idempotency key that no other request has; over plain HTTP a browser has no `randomUUID`. */
export const newToken = (): string => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');

/** What the service tells about an input and its answer; empty if it has nothing to tell. */
export const warningsOf = (answer: Response): string => sentence([decodeURIComponent(answer.headers.get('Caps-Med-Warnings') ?? '')]);

/** Warnings as a sentence. */
export const sentence = (warnings: readonly string[]): string => {
  const told = warnings.join('; ');
  return told && `${told.charAt(0).toUpperCase()}${told.slice(1)}.`;
};

/** The address of a picture that the service has made, unless it is not wanted any more: whoever gets it lets it go. */
export async function picture(answer: Response | Promise<Response>, signal?: AbortSignal): Promise<string> {
  const content = await (await answer).blob();
  signal?.throwIfAborted();
  return URL.createObjectURL(content);
}

/** Let the picture of an address go when another one takes its place; for an effect. */
export const until = (address: string) => (): void => URL.revokeObjectURL(address);

/** Pictures side by side, as the service has made them. */
export const sheet = async (answer: Response | Promise<Response>): Promise<ImageBitmap> => createImageBitmap(await (await answer).blob());

/** Hear server-sent events until they end or are not wanted; by fetch, which unlike EventSource can send a key. */
export async function hear(path: string, signal: AbortSignal, heard: Record<string, (data: never) => void>): Promise<void> {
  const write = ({ event = '', data }: { event?: string | undefined; data: string }) => heard[event]?.(JSON.parse(data) as never);
  try {
    const { body } = await call(path, { signal });
    await body?.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream())
      .pipeTo(new WritableStream({ write }), { signal });
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/** Whether the service said nothing: what it refuses is for good, a connection that breaks off is not. */
export const isSilence = (error: unknown): boolean => !(error instanceof Problem && error.code);
export function unlessSilent(error: unknown): void {
  if (!isSilence(error)) throw error;
}

/** Offer bytes as a file to keep. */
export function save(content: Blob, download: string): void {
  const href = URL.createObjectURL(content);
  Object.assign(document.createElement('a'), { href, download }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

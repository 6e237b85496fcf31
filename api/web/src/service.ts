/** Calls to the service: the key, its problems, its streams. */
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { find, put } from './dom.js';

export interface Finding { severity: string; code: string; file: string; what: string; fix: string }

/** What the service refuses, as it says it. */
export class Problem extends Error {
  constructor(readonly title: string, detail: string, readonly code = '', readonly findings: Finding[] = []) {
    super(detail);
  }

  static async of(answer: Response): Promise<Problem> {
    const said = await answer.json().catch(() => ({}));
    const wait = answer.headers.get('Retry-After');
    const detail = (said.detail ?? `The service answered ${answer.status}.`) + (wait ? ` Try again in ${wait} s.` : '');
    return new Problem(said.title ?? 'error', detail, said.code, said.findings);
  }
}

const SLOT = 'caps-med-key';
let asking: Promise<boolean> | undefined;

/** Whether a key was entered in this tab. */
export const holdsKey = (): boolean => sessionStorage.getItem(SLOT) !== null;
export const forgetKey = (): void => sessionStorage.removeItem(SLOT);

/** Ask for a key, once however many calls need it; whether one was given. */
function askForKey(why: string): Promise<boolean> {
  asking ??= new Promise((answered) => {
    const [dialog, field] = [find('dialog'), find('dialog input')];
    put(dialog, { why });
    dialog.returnValue = '';
    dialog.onclose = () => {
      const given = dialog.returnValue === 'ok';
      if (given) sessionStorage.setItem(SLOT, field.value.trim());
      field.value = '';
      asking = undefined;
      answered(given);
      document.dispatchEvent(new Event('key'));
    };
    dialog.showModal();
  });
  return asking;
}

/** One call; what is refused is thrown as a `Problem`. Paths are relative, so that a proxy may add a prefix. */
export async function call(path: string, init: RequestInit = {}): Promise<Response> {
  const key = sessionStorage.getItem(SLOT);
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const answer = await fetch(path, { ...init, headers }).catch((error: unknown) => {
    if (init.signal?.aborted) throw error;
    throw new Problem('no answer', 'The service does not answer. Does it still run? Start it with: caps-med serve');
  });
  if (answer.ok) return answer;
  const problem = await Problem.of(answer);
  if (answer.status === 401 && (await askForKey(key ? 'The key is unknown or was revoked.' : ''))) return call(path, init);
  throw problem;
}

export const json = async <T>(path: string): Promise<T> => (await call(path)).json();

/** POST a form; what is undefined or empty is left out. */
export function post(path: string, fields: object, signal?: AbortSignal): Promise<Response> {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) if (value !== undefined && value !== '') body.append(name, value);
  return call(path, { method: 'POST', body, signal: signal ?? null });
}

/** The address of a picture that the service has made. */
export const picture = async (answer: Promise<Response>): Promise<string> =>
  URL.createObjectURL(await (await answer).blob());

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

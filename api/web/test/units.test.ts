import { zipSync } from 'fflate';
import { describe, expect, it, vi } from 'vitest';
import { leftBehind, standing } from '../src/background.js';
import { toldOf } from '../src/told.js';
import { channelsOf, oneOf } from '../src/channels.js';
import { choose, offered, withChoices, withOffer } from '../src/choices.js';
import { capsuleNames, type Detail, inOrder, type Model, scoreText, toBeginWith } from '../src/catalog.svelte.js';
import { meanCouplings, meanLengths } from '../src/couplings.js';
import { alsoHidden, compare, translation } from '../src/compare.js';
import { BOX, chart, ticks } from '../src/curve.js';
import { History } from '../src/history.js';
import { forget, keep, kept, keyOf, last } from '../src/kept.js';
import { Latest } from '../src/latest.js';
import { measureOf, npz, part, RISING, SIGNED } from '../src/maps.js';
import { apart } from '../src/names.js';
import { type Color, colorsAs, colorsOf, OKABE_ITO } from '../src/palette.js';
import { position } from '../src/readout.js';
import { asField, between, stepped } from '../src/region.js';
import { call, Problem, warningsOf } from '../src/service.svelte.js';
import { sizeText } from '../src/size.js';
import { deltas, nearest } from '../src/strip.svelte.js';
import { within } from '../src/viewer.js';
import { loses } from '../src/tab.js';
import { traitsOf } from '../src/tasks.js';
import { followed } from '../src/training.js';
import { fillWithPercents, uncertaintyColors } from '../src/uncertainty.js';
import { unlessStopped, Work } from '../src/work.svelte.js';

describe('a name within a sentence', () => {
  it('turns nothing around it, whatever marks of direction it has', () => {
    expect(apart('grey matter, größer')).toBe('grey matter, größer');
    expect(apart('\u202emottob')).toBe('\u2068\u202emottob\u2069');
    expect(apart('\u2069\u202eout')).toBe('\u2068\u202eout\u2069');
    expect(apart('מוח')).toBe('\u2068מוח\u2069');
  });
});

describe('the size of an answer', () => {
  it('has x first, of a picture and of a volume', () => {
    expect(sizeText([64, 70])).toBe('70 × 64 pixels');
    expect(sizeText([181, 217, 90])).toBe('181 × 217 × 90 voxels');
    expect(sizeText([181, 217, 90], [0.9, 1, 2.4999])).toBe('181 × 217 × 90 voxels of 0.9 × 1 × 2.5 mm');
  });
});

describe('a job in the background', () => {
  const job = { id: 'a', state: 'running' as const, position: null, seconds_to_start: null, seconds_left: 41.7, progress: { done: 60, total: 181 } };
  it('tells how far it is', () => {
    expect(standing(job)).toBe('60 of 181 done, about 42 s left');
    expect(standing({ ...job, seconds_left: null })).toBe('60 of 181 done');
    expect(standing({ ...job, progress: { done: 0, total: 0 } })).toBe('getting ready');
    expect(standing({ ...job, state: 'queued', position: 2, seconds_to_start: 30 })).toBe('place 2 in the queue, about 30 s to wait');
  });
  it('is remembered by its tab', () => {
    const store = { getItem: () => '{"id":"a","name":"head.nii","model":"m","token":"t"}' } as unknown as Storage;
    expect(leftBehind(store)?.model).toBe('m');
    expect(leftBehind({ getItem: () => null } as unknown as Storage)).toBeUndefined();
  });
});

describe('the model to begin with', () => {
  const models = ['axons', 'brain', 'heart'].map((name) => ({ name }) as Model);
  it('is the first that the service preloads', () => {
    expect(toBeginWith(models, ['digits', 'heart', 'brain'], [{ model: 'brain' }])).toBe('heart');
  });
  it('is else that of the first sample, else the first', () => {
    expect(toBeginWith(models, ['digits'], [{ model: 'digits' }, { model: 'brain' }])).toBe('brain');
    expect(toBeginWith(models, [], [])).toBe('axons');
    expect(toBeginWith([], [], [])).toBeUndefined();
  });
});

describe('what the service warns of', () => {
  it('is a sentence, with what its header encodes', () => {
    const answer = new Response(null, { headers: { 'Caps-Med-Warnings': 'the label map is 100 %25 gro%C3%9F' } });
    expect(warningsOf(answer)).toBe('The label map is 100 % groß.');
    expect(warningsOf(new Response())).toBe('');
  });
});

describe('how sure a segmentation is', () => {
  it('is written as whole percents over the voxels of a label map', () => {
    const colors: unknown[] = [];
    const map = { img: new Uint8Array(3), setColormapLabel: (given: unknown) => colors.push(given) };
    const shares = { img: new Float32Array([0, 0.254, 1]), hdr: { scl_slope: 1, scl_inter: 0 } };
    expect((fillWithPercents(map as never, shares as never, 'entropy') as never as typeof map).img).toEqual(new Uint8Array([0, 25, 100]));
    expect(colors).toEqual([uncertaintyColors('entropy')]);
  });
  it('lets the image through where the model is sure', () => {
    const [entropy, confidence] = [uncertaintyColors('entropy'), uncertaintyColors('confidence')];
    expect([entropy.A?.[0], entropy.A?.[100]]).toEqual([0, 255]);
    expect([confidence.A?.[0], confidence.A?.[100]]).toEqual([255, 0]);
    expect(entropy.labels?.[37]).toBe('entropy 37 %');
  });
});

describe('maps of capsules', () => {
  const maps = { width: 3, height: 1, data: new Float32Array([1, 2, 3, -4, 5, -6]), most: 6 };
  it('are parts of an array, each with its largest magnitude', () => {
    expect(part(maps, 1)).toEqual({ width: 3, height: 1, data: new Float32Array([-4, 5, -6]), most: 6 });
    expect(part(maps, 0, 1).most).toBe(3);
    expect([...part(maps, 0).data]).toEqual([...maps.data]);
  });
  it('rise from dark to bright, and go through dark between two colours', () => {
    expect([...RISING.slice(0, 4), ...RISING.slice(-4)]).toEqual([13, 17, 23, 255, 250, 240, 170, 255]);
    expect([...SIGNED.slice(4 * 128, 4 * 128 + 4)]).toEqual([18, 22, 28, 255]);
  });
});

describe('arrays of the service', () => {
  const npy = (header: string, data: Float32Array) => {
    const text = new TextEncoder().encode(`${header.padEnd(117, ' ')}\n`);
    return new Uint8Array([0x93, ...new TextEncoder().encode('NUMPY'), 1, 0, text.length, 0, ...text, ...new Uint8Array(data.buffer)]);
  };
  const header = (descr: string) => `{'descr': '${descr}', 'fortran_order': False, 'shape': (2, 1, 1, 2, 3), }`;
  const data = Float32Array.from({ length: 12 }, (_, i) => i - 20);
  it('have any number of axes', () => {
    const found = npz(zipSync({ 'couplings/first.npy': npy(header('<f4'), data) }));
    expect(found['couplings/first']).toEqual({ width: 3, height: 2, data, most: 20, shape: [2, 1, 1, 2, 3] });
  });
  it('are of float32', () => {
    expect(() => npz(zipSync({ 'a.npy': npy(header('<f8'), data) }))).toThrow(/an array of another kind/);
  });
});

describe('what is told of capsules', () => {
  const capsules = { width: 2, height: 1, most: 4, shape: [1, 2, 1, 2], data: new Float32Array([0.3, 1, 0.4, 1]) };
  const told = (first: number) => ({ width: 2, height: 1, most: 1, shape: [1, 1, 2], data: new Float32Array([first, 1]) });
  it('is their length, or something else', () => {
    expect(measureOf(told(0.5), capsules)).toBe('length');
    expect(measureOf(told(0.9), capsules)).toBe('activation');
    expect(measureOf(undefined, capsules)).toBeUndefined();
  });
});

describe('what changes faster than it is answered', () => {
  it('is asked one at a time, and then the newest', async () => {
    const asked: number[] = [];
    const waiting: (() => void)[] = [];
    const latest = new Latest((value: number) => { asked.push(value); return new Promise<void>((then) => { waiting.push(then); }); });
    const all = [latest.ask(1), latest.ask(2), latest.ask(3)];
    expect(asked).toEqual([1]);
    waiting.shift()?.();
    await new Promise((then) => { setTimeout(then); });
    expect(asked).toEqual([1, 3]);
    waiting.shift()?.();
    await Promise.all(all);
    void latest.ask(4);
    expect(asked).toEqual([1, 3, 4]);
  });
});

describe('a region', () => {
  const size = { rows: 20, columns: 40 };
  it('lies between two places, inside the image', () => {
    expect(between([[15.5, 30.2], [3.9, -7]], size)).toEqual({ row: 3, column: 0, height: 13, width: 31 });
    expect(between([[3, 3], [3.9, 30]], size)).toBeUndefined();
  });
  it('is moved and resized by keys, and stays inside', () => {
    const half = stepped(undefined, [0, 1], size, false);
    expect(half).toEqual({ row: 5, column: 10, height: 10, width: 20 });
    expect(stepped(half, [0, 1], size, false)).toEqual({ ...half, column: 12 });
    expect(stepped({ ...half, column: 20 }, [0, 1], size, false).column).toBe(20);
    expect(stepped(half, [1, 0], size, true)).toEqual({ ...half, height: 11 });
    expect(stepped({ ...half, height: 1 }, [-1, 0], size, true).height).toBe(1);
    expect(asField(half)).toBe('5,10,10,20');
    expect(asField(undefined)).toBeUndefined();
  });
});

describe('couplings of a capsule type', () => {
  const couplings = { width: 2, height: 1, most: 1, shape: [2, 1, 2, 1, 2], data: new Float32Array([0.5, 0.5, 0.5, 0.5, 1, 0.5, 0, 0.5]) };
  const lengths = { width: 2, height: 1, most: 0.6, shape: [1, 1, 2], data: new Float32Array([0.2, 0.6]) };
  const near = (found: number[][]) => found.map((row) => row.map((value) => Number(value.toFixed(4))));
  it('are means over its positions, by length', () => {
    expect(near(meanCouplings(couplings, lengths, 0))).toEqual([[0.5, 0.5]]);
    expect(near(meanCouplings(couplings, lengths, 1))).toEqual([[0.625, 0.375]]);
    expect(meanLengths(lengths)[0]).toBeCloseTo(0.4);
  });
  it('or those of its longest capsule', () => {
    expect(near(meanCouplings(couplings, lengths, 1, 'longest'))).toEqual([[0.5, 0.5]]);
  });
});

describe('files of channels', () => {
  const ordered = (names: string[], channels: string[]) => inOrder(names.map((name) => ({ name })), channels).map(({ name }) => name);
  it('are those whose names tell the channels', () => {
    expect(ordered(['p1_t1.nii.gz', 'p1_flair.nii.gz'], ['FLAIR', 'T1'])).toEqual(['p1_flair.nii.gz', 'p1_t1.nii.gz']);
  });
  it('are told apart where one name is in another', () => {
    const brats = ['T1', 'T1ce', 'T2', 'FLAIR'];
    expect(ordered(['p_flair.nii', 'p_t1.nii', 'p_t1ce.nii', 'p_t2.nii'], brats)).toEqual(['p_t1.nii', 'p_t1ce.nii', 'p_t2.nii', 'p_flair.nii']);
    expect(ordered(['t2.nii', 't2flair.nii'], ['T2', 'FLAIR'])).toEqual(['t2.nii', 't2flair.nii']);
    expect(ordered(['t1_b.nii', 't1_a.nii'], ['T1', 'T2'])).toEqual(['t1_a.nii', 't1_b.nii']);
  });
  it('else go by name, numbers as numbers', () => {
    expect(ordered(['a_0010.nii', 'a_0002.nii'], ['FLAIR', 'T1'])).toEqual(['a_0002.nii', 'a_0010.nii']);
    expect(ordered(['t1ce.nii', 't1.nii'], ['T1', 'T1ce'])).toEqual(['t1.nii', 't1ce.nii']);
  });
});

describe('capsules', () => {
  const model = { takes: 'image', labels: { 0: 'background', 1: 'axon' }, layers: [{ name: 'first' }, { name: 'last' }] };
  const names = (name: string, types: number) =>
    capsuleNames(model as unknown as Detail, { name, types, atoms: 16, stride: 1 });
  it('of the last layer are called as its labels, the only one as the only class', () => {
    expect(names('first', 3)).toEqual(['type 0', 'type 1', 'type 2']);
    expect(names('last', 2)).toEqual(['background', 'axon']);
    expect(names('last', 1)).toEqual(['axon']);
    expect(names('last', 3)).toEqual(['type 0', 'type 1', 'type 2']);
  });
});

describe('a task of another package', () => {
  it('has no view, and says what it can', () => {
    expect(traitsOf('counting')).toEqual({ score: 'score', data: 'the data of this task', batch: 'Images' });
    expect(traitsOf('constructor').view).toBeUndefined();
    expect(traitsOf('synthesis').view).toBe('Synthesize');
  });
});

describe('a strip', () => {
  it('shows the picture nearest to the slider, and its ends at the ends', () => {
    expect([0, 0.12, 0.13, 0.5, 1, 2, -1].map((at) => nearest(at, 5))).toEqual([0, 0, 1, 2, 4, 4, 0]);
  });
  it('of an atom runs from -0.25 to 0.25 through nothing', () => {
    expect(deltas(5)).toBe('-0.2500,-0.1250,0.0000,0.1250,0.2500');
  });
});

describe('a curve', () => {
  it('has round numbers at its axes', () => {
    expect(ticks(0, 25)).toEqual([0, 5, 10, 15, 20, 25]);
    expect(ticks(0.12, 0.93)).toEqual([0.2, 0.4, 0.6, 0.8]);
    expect(ticks(-0.25, 0.25)).toEqual([-0.2, -0.1, 0, 0.1, 0.2]);
  });
  it('reaches to the last epoch that there will be, the largest value on top', () => {
    const drawn = chart([[1, 0.9], [2, 0.1]], 4);
    const [[x1 = 0, y1 = 0] = [], [x2 = 0, y2 = 0] = []] = drawn.line.split(' ').map((point) => point.split(',').map(Number));
    const epoch = (BOX.right - BOX.left) / 4;
    expect([x1, x2]).toEqual([BOX.left + epoch, BOX.left + 2 * epoch]);
    expect([y1 > BOX.top, y1 < y2, y2 < BOX.bottom]).toEqual([true, true, true]);
    expect(drawn.across.map(({ at }) => at)).toEqual([0, 1, 2, 3, 4]);
  });
  it('of one value lies in the middle', () => {
    expect(Number(chart([[1, 7]], 1).last[1])).toBeCloseTo((BOX.top + BOX.bottom) / 2, 1);
  });
});

describe('what the service says', () => {
  it('is a problem with its code, and when to try again', async () => {
    const body = JSON.stringify({ title: 'overloaded', detail: 'too much waits', code: 'overloaded' });
    const problem = await Problem.of(new Response(body, { status: 503, headers: { 'Retry-After': '2' } }));
    expect([problem.code, problem.message]).toEqual(['overloaded', 'too much waits. Try again in 2 s.']);
  });
  it('is a problem even where it says nothing', async () => {
    expect((await Problem.of(new Response('', { status: 502 }))).message).toBe('The service answered 502.');
  });
});

describe('a busy service', () => {
  const busy = (seconds: number) => new Response('{"code":"storage_unavailable"}', { status: 503, headers: { 'Retry-After': `${seconds}` } });
  /** What a call ends with, and when, if the service answers so; in seconds. */
  const outcome = async (answers: () => Response, signal?: AbortSignal) => {
    vi.useFakeTimers();
    vi.stubGlobal('fetch', vi.fn(async () => answers()));
    const begun = Date.now();
    const end = call('v1/models', signal ? { signal } : {}).then((answer) => answer.status, (error) => (error instanceof Problem ? error.code : error.name));
    await vi.runAllTimersAsync();
    const found = [await end, (Date.now() - begun) / 1000];
    vi.unstubAllGlobals();
    vi.useRealTimers();
    return found;
  };
  it('is asked again when it says so', async () => {
    const answers = [busy(5), busy(1), new Response('{}')];
    expect(await outcome(() => answers.shift() as Response)).toEqual([200, 6]);
  });
  it('is not waited for without end, nor if it asks for a long time', async () => {
    expect(await outcome(() => busy(5))).toEqual(['storage_unavailable', 60]);
    expect(await outcome(() => busy(31))).toEqual(['storage_unavailable', 0]);
    expect(await outcome(() => busy(Number.NaN))).toEqual(['storage_unavailable', 0]);
  });
  it('is not asked again once nobody wants the answer', async () => {
    const wish = new AbortController();
    expect(await outcome(() => { wish.abort(); return busy(5); }, wish.signal)).toEqual(['AbortError', 0]);
    const later = new AbortController();
    expect(await outcome(() => { setTimeout(() => later.abort(), 2000); return busy(5); }, later.signal)).toEqual(['AbortError', 2]);
  });
});

describe('a training job whose stream breaks off', () => {
  const event = (name: string, data: object) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
  /** What is heard of it, from streams that end after these events. */
  const heard = async (streams: string[]) => {
    vi.useFakeTimers();
    const fetched = vi.fn(async () => new Response(streams.shift()));
    vi.stubGlobal('fetch', fetched);
    let log: string[] = [];
    const states: string[] = [];
    const end = followed('a', new AbortController().signal, {
      begins: () => { log = []; }, job: ({ state }) => states.push(state), log: ({ lines }) => log.push(...lines), picture: () => undefined,
    });
    await vi.runAllTimersAsync();
    await end;
    vi.unstubAllGlobals();
    vi.useRealTimers();
    return { states, log, asked: fetched.mock.calls.length };
  };
  it('is heard of until it is over, its log once', async () => {
    const running = event('job', { state: 'running' }) + event('log', { lines: ['one'] });
    const over = event('job', { state: 'succeeded' }) + event('log', { lines: ['one', 'two'] });
    expect(await heard([running, '', over])).toEqual({ states: ['running', 'succeeded'], log: ['one', 'two'], asked: 3 });
  });
});

describe('work of a view', () => {
  it('that was stopped replaces nothing, however late its answer comes', async () => {
    const work = new Work();
    const shown: string[] = [];
    const show = (what: string, promise: Promise<void>) => work.run(what, async (signal) => {
      await unlessStopped(signal, promise);
      shown.push(what);
    });
    let come = () => {};
    const first = show('first', new Promise((then) => { come = then; }));
    await show('second', Promise.resolve());
    come();
    await first;
    expect([shown, work.state]).toEqual([['second'], 'idle']);
  });
  it('is heard when it begins and how it ends, and not in between', async () => {
    const work = new Work();
    const heard: string[] = [];
    const listen = () => heard.push(work.heard);
    await work.run('Segmenting', async (_, say) => { listen(); say('Segmenting: 1 of 2 done'); listen(); });
    listen();
    await work.run('Segmenting', async (signal) => { work.stop(); signal.throwIfAborted(); });
    listen();
    await work.run('Segmenting', () => Promise.reject(new Error('lost')));
    listen(); // the problem is an alert
    expect(heard).toEqual(['Segmenting', 'Segmenting', 'Segmenting: done', 'Segmenting: cancelled', '']);
  });
});

describe('two label maps of one image', () => {
  const tissue = { 0: 'background', 1: 'fluid', 2: 'Grey matter' };
  it('are compared by the names of their labels', () => {
    const other = { 0: 'background', 1: 'grey matter', 2: 'vessel' };
    expect([...translation(tissue, other)]).toEqual([[0, 0], [1, 2], [2, 1002]]);
    const found = compare([0, 1, 2, 2, 2, 0], [0, 0, 1, 1, 2, 2], tissue, other);
    expect([...found.map]).toEqual([0, 1, 0, 0, 3, 2]);
    expect(found.dice).toEqual([['Grey matter', 4 / 5]]); // 2 * 2 / (3 + 2)
    expect([found.ofAll, found.ofLabelled]).toEqual([3 / 6, 3 / 5]);
  });
  it('hide the labels of one name together, whatever their ids', () => {
    const other = { 0: 'background', 1: 'grey matter', 2: 'vessel' };
    expect([...alsoHidden(new Set([2]), tissue, other)]).toEqual([1]);
    expect([...alsoHidden(new Set([1]), tissue, other)]).toEqual([]);
  });
  it('of one label each are about the same thing', () => {
    expect(compare([1, 0, 1], [1, 1, 0], { 0: '', 1: 'axon' }, { 0: '', 1: 'neurite' }).dice).toEqual([['axon', 0.5]]);
    expect(compare([0], [0], { 0: '', 1: 'axon' }, { 0: '', 1: 'axon' }).dice).toEqual([['axon', undefined]]);
  });
  it('of different sizes are refused', () => {
    expect(() => compare([1], [1, 2], tissue, tissue)).toThrow('1 and 2 voxels');
  });
});

describe('what is painted', () => {
  const step = (value: number) => new Uint8Array([value]);
  it('goes back and forth, and what was undone is gone after another stroke', () => {
    const history = new History();
    history.begin(step(0));
    for (const value of [1, 2, 3]) history.push(step(value));
    expect([history.go(-1)?.[0], history.go(-1)?.[0], history.go(1)?.[0], history.canRedo]).toEqual([2, 1, 2, true]);
    history.push(step(9));
    expect([history.canRedo, history.go(1), history.go(-1)?.[0]]).toEqual([false, undefined, 2]);
  });
  it('takes no more memory than there is room for', () => {
    const history = new History(12); // two voxels' changes
    history.begin(step(0));
    for (const value of [1, 2, 3, 4]) history.push(step(value));
    expect([history.go(-1)?.[0], history.go(-1)?.[0], history.go(-1)]).toEqual([3, 2, undefined]);
  });
  it('makes no plain array of the voxels, as `from` with a function does, which ends a tab with a large volume', () => {
    const from = vi.spyOn(Uint8Array, 'from');
    const history = new History();
    history.begin(new Uint8Array(1000));
    history.push(new Uint8Array(1000).fill(1));
    expect([history.go(-1)?.[999], history.go(1)?.[999]]).toEqual([0, 1]);
    expect(from).not.toHaveBeenCalled();
    from.mockRestore();
  });
  it('has no step in which nothing was changed', () => {
    const history = new History();
    history.begin(step(4));
    history.push(step(4));
    expect(history.canUndo).toBe(false);
  });
  it('is kept by image, and what is oldest gives way', () => {
    const store = storage();
    const noise = () => crypto.getRandomValues(new Uint8Array(60_000));
    const painting = (name: string) => ({ name, source: step(0), painted: new Uint8Array([...noise(), ...noise(), ...noise(), ...noise()]), geometry: true });
    for (let i = 0; i < 15; i++) expect(keep(`key${i}`, painting(`${i}`), store)).toBe(true);
    expect(kept('key14', store)?.name).toBe('14');
    expect(kept('key0', store)).toBeUndefined();
    expect([...Array(store.length).keys()].reduce((sum, i) => sum + (store.getItem(store.key(i) ?? '')?.length ?? 0), 0)).toBeLessThan(4.1e6);
    expect(last(store)).toBe('key14');
    forget('key14', store);
    expect([kept('key14', store), last(store)]).toEqual([undefined, undefined]);
  });
  it('comes back as it was, or is too large', async () => {
    const store = storage();
    const painting = { name: 'a', source: step(1), painted: step(2), image: step(3), geometry: false };
    const key = await keyOf(step(1));
    expect(key).toBe(await keyOf(step(1)));
    expect(key).not.toBe(await keyOf(step(2)));
    expect(keep(key, painting, store)).toBe(true);
    expect(kept(key, store)).toEqual(painting);
    const part = crypto.getRandomValues(new Uint8Array(60_000));
    const noise = new Uint8Array(3.5e6).map((_, i) => (part[i % 60_000] as number) ^ (part[(i >> 8) % 60_000] as number));
    expect(keep(key, { ...painting, image: noise }, store)).toBe(true); // without its image
    expect(kept(key, store)?.image).toBeUndefined();
    expect(loses()).toBe(false);
    expect(keep(key, { ...painting, painted: noise }, store)).toBe(false);
    expect([kept(key, store)?.painted.length, loses()]).toEqual([noise.length, true]); // until the page is left, of which it warns
    forget(key, store);
    expect([kept(key, store), loses()]).toEqual([undefined, false]);
  });
});

describe('told where a picture would be', () => {
  it('is what goes on, or why there is none', () => {
    const error = new Problem('Error', 'no image', 'invalid_input');
    const several = new Problem('Error', '2 volumes', 'several_volumes', [], { volumes: 2 });
    expect(toldOf({ state: 'idle', said: 'Reading a', error: undefined })).toBe('');
    expect(toldOf({ state: 'busy', said: 'Reading a', error: undefined })).toBe('Reading a');
    expect(toldOf({ state: 'failed', said: 'Reading a', error })).toBe('Reading a: no image');
    expect(toldOf({ state: 'failed', said: '', error })).toBe('no image');
    expect(toldOf({ state: 'failed', said: 'Reading a', error: several })).toBe('This file holds several volumes: choose one.');
  });
});

describe('channels', () => {
  it('are colours, or have their names, or numbers; one is none to choose', () => {
    expect(channelsOf(3, true, ['R', 'G', 'B'])).toEqual([['', 'in colour'], ['0', 'red'], ['1', 'green'], ['2', 'blue']]);
    expect(channelsOf(2, false, ['FLAIR', 'T1'])).toEqual([['0', apart('FLAIR')], ['1', apart('T1')]]);
    expect(channelsOf(2, false, ['T1'])).toEqual([['0', '1 of 2'], ['1', '2 of 2']]);
    expect(channelsOf(1, false)).toEqual([]);
  });
  it('stay from image to image where there are as many', () => {
    expect([oneOf(channelsOf(2, false), '1'), oneOf(channelsOf(2, false), '5'), oneOf(channelsOf(3, true), '5'), oneOf([], '1')]).toEqual(['1', '0', '', '']);
  });
});

describe('colours', () => {
  it('for the colour-blind are all different, however many labels there are', () => {
    const labels = Object.fromEntries(Array.from({ length: 20 }, (_, id) => [id, `label ${id}`]));
    const found = Object.values(colorsOf({ labels, colors: {} }, 'safe')).map(String);
    expect(found.slice(1, 8)).toEqual(OKABE_ITO.map(String));
    expect(new Set(found).size).toBe(20);
  });
  it('are those of a model where a project has its labels', () => {
    const model = { labels: { 0: 'background', 1: 'fluid', 2: 'grey' }, colors: { 0: [0, 0, 0], 1: [1, 1, 1], 2: [2, 2, 2] } as Record<string, Color> };
    const own = { labels: { 0: 'background', 1: 'lesion', 2: 'grey', 3: 'bone' }, colors: { 0: [0, 0, 0], 1: [7, 7, 7], 2: [8, 8, 8], 3: [9, 9, 9] } as Record<string, Color> };
    expect(colorsAs(model, own)).toEqual({ ...own.colors, 2: [2, 2, 2] });
    expect(colorsAs(undefined, own)).toEqual(own.colors);
  });
});

describe('a position', () => {
  it('names its anatomical directions', () => {
    expect(position([12, -3.46, 0])).toBe('R 12.0 · P 3.5 · S 0.0 mm');
  });
});

describe('a score', () => {
  it('is not rounded to a perfect one', () => {
    expect([0, 0.8614, 0.9997, 0.99996, 1, 37.25].map(scoreText)).toEqual(['0', '0.861', '0.9997', '0.99996', '1', '37.3']);
  });
});

describe('what never comes', () => {
  it('is a failure after a while', async () => {
    await expect(within(new Promise(() => undefined), 5, new Error('late'))).rejects.toThrow('late');
    expect(await within(Promise.resolve(1), 5, new Error('late'))).toBe(1);
  });
});

/** Storage as browsers have it: its entries are its keys. */
function storage(): Storage {
  const methods = {
    getItem(key: string) { return (this as unknown as Record<string, string>)[key] ?? null; },
    setItem(key: string, value: string) { Object.assign(this, { [key]: value }); },
    removeItem(key: string) { delete (this as unknown as Record<string, string>)[key]; },
    key(at: number) { return Object.keys(this)[at] ?? null; },
    get length() { return Object.keys(this).length; },
  };
  return Object.create(methods) as Storage;
}

describe('several images in a file', () => {
  const series = { code: 'several_series', members: { series: [{ uid: '1.2', title: 'MR, T1' }, { uid: '1.3', title: 'CT' }] } };

  it('is offered as the service lists it', () => {
    const [all, volumes] = [offered(series), offered({ code: 'several_volumes', members: { volumes: 2 } })];
    expect(all?.choices.map(({ value }) => value)).toEqual(['1.2', '1.3']);
    expect(volumes).toEqual({ name: 'volume', choices: [{ value: '0', title: '1 of 2' }, { value: '1', title: '2 of 2' }] });
    expect(offered({ code: 'invalid_input', members: {} })).toBeUndefined();
    if (all && volumes) {
      expect(withOffer([all], volumes)).toEqual([all, volumes]);
      expect(withOffer([all, volumes], all)).toEqual([all]); // another series has other volumes
    }
  });

  it('is sent with its file, wherever that goes', () => {
    const [study, other] = [new Blob(['a']), new Blob(['b'])];
    choose(study, { series: '1.2', volume: '1' });
    expect(withChoices('v1/images?format=nifti', ['x', study])).toBe('v1/images?format=nifti&series=1.2&volume=1');
    expect(withChoices('v1/models/m/classify', [study])).toBe('v1/models/m/classify?series=1.2&volume=1');
    expect(withChoices('v1/images', [other, undefined])).toBe('v1/images');
  });
});

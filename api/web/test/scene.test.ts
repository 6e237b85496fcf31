import type { NVImage } from '@niivue/niivue';
import { describe, expect, it } from 'vitest';
import { Scene } from '../src/scene.svelte.js';
import { noGraphics, type Viewer } from '../src/viewer.js';

describe('what comes while WebGL starts once more', () => {
  /** A viewer that draws nothing, `ready` once it could, and the label maps that it was given. */
  const viewer = (ready: Promise<unknown>, laid: string[] = []) => {
    const own = { ready, opts: {}, volumes: [] as NVImage[], image: (image: NVImage) => { own.volumes = [image]; }, labels: ({ name }: NVImage) => { laid.push(name); } };
    return new Proxy(own as unknown as Viewer, { get: (_, name) => Reflect.get(own, name) ?? (() => undefined), set: () => true });
  };
  const image = (name: string) => ({ name, dimsRAS: [3, 4, 4, 4], cal_min: 0, cal_max: name.length }) as unknown as NVImage;

  it('is laid over the image once that is drawn, if it is an answer', async () => {
    const begin: (() => void)[] = [];
    const laid: string[] = [];
    const scene = new Scene('test', () => viewer(new Promise<void>((ready) => { begin.push(ready); }), laid));
    begin[0]?.();
    await scene.show(image('image'), true, 3);
    scene.failure = noGraphics('lost.');
    const again = scene.again();
    scene.overlay(image('answer'));
    expect(laid).toEqual([]);
    begin[1]?.();
    await again;
    expect([scene.labels?.name, laid]).toEqual(['answer', ['answer']]);
  });
  it('gets neither the label map nor the window of the one before, if it is another image', async () => {
    const begin: (() => void)[] = [];
    const scene = new Scene('test', () => viewer(new Promise<void>((ready) => { begin.push(ready); })));
    begin[0]?.();
    await scene.show(image('first'), true, 3);
    scene.overlay(image('its labels'));
    scene.failure = noGraphics('lost.');
    const again = scene.again();
    scene.clear();
    const shown = scene.show(image('second image'), true, 3);
    begin[1]?.();
    await Promise.all([again, shown]);
    expect([scene.image?.name, scene.labels?.name, scene.window]).toEqual(['second image', undefined, { low: 0, high: 12 }]);
  });
});

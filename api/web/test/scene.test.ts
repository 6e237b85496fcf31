import type { NVImage } from '@niivue/niivue';
import { describe, expect, it } from 'vitest';
import { Scene } from '../src/scene.svelte.js';
import { noGraphics, type Viewer } from '../src/viewer.js';

describe('an image that is chosen while WebGL starts once more', () => {
  /** A viewer that draws nothing; `ready`: once it could. */
  const viewer = (ready: Promise<unknown>) => new Proxy({ ready, opts: {} } as unknown as Viewer, {
    get: (own, name) => Reflect.get(own, name) ?? (() => undefined), set: () => true });
  const image = (name: string) => ({ name, dimsRAS: [3, 4, 4, 4], cal_min: 0, cal_max: name.length }) as unknown as NVImage;

  it('gets neither the label map nor the window of the one before', async () => {
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

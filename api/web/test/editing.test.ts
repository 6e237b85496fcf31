import { describe, expect, it } from 'vitest';
import { around, between, brighter, changedSlices, dot, fill, interpolate, type LabelMap, line, type Normal, signedDistance, type Voxel } from '../src/editing.js';

const empty = (size: Voxel): LabelMap => ({ labels: new Uint8Array(size[0] * size[1] * size[2]), size });
/** A map of one slice, from its rows. */
const flat = (...rows: string[]): LabelMap =>
  ({ labels: Uint8Array.from(rows.join(''), Number), size: [(rows[0] as string).length, rows.length, 1] });
const rows = ({ labels, size: [nx] }: LabelMap): string[] =>
  Array.from({ length: labels.length / nx }, (_, y) => labels.subarray(y * nx, (y + 1) * nx).join(''));
const count = ({ labels }: LabelMap, label = 1): number => labels.reduce((sum, value) => sum + Number(value === label), 0);

describe('a brush', () => {
  it('paints a round dot in its slice, cut off at the edge', () => {
    const map = empty([5, 5, 3]);
    dot(map, [2, 2, 1], 2, 5, 1);
    expect(rows(map).slice(5, 10)).toEqual(['01110', '11111', '11111', '11111', '01110']);
    expect(count(map)).toBe(21);
    dot(map, [0, 2, 0], 0, 5, 2); // across the first axis
    expect([map.labels[5 * 2], map.labels[1 + 5 * 2], count(map, 2)]).toEqual([2, 0, 5 + 5 + 3]);
  });
  it('leaves out what is brighter or darker than wanted, bounds included', () => {
    const map = empty([5, 1, 1]);
    dot(map, [2, 0, 0], 2, 5, 1, between([10, 20, 30, 40, 50], 20, 40));
    expect(rows(map)).toEqual(['01110']);
  });
  it('leaves no hole on its way', () => {
    const map = empty([9, 5, 1]);
    for (const at of line([0, 0, 0], [8, 4, 0])) dot(map, at, 2, 1, 1);
    expect(new Set([...map.labels].flatMap((value, i) => (value ? [i % 9] : []))).size).toBe(9);
  });
});

describe('a range of intensities', () => {
  it('begins as the brighter half of the window, with the brightest value in it', () => {
    expect(brighter(100, 3000.04, 12344)).toEqual([1550, 12344]);
    expect(brighter(0, 0.123456, 0.123456)).toEqual([0.06173, 0.1235]);
  });
});

describe('a fill', () => {
  it('changes a region that touches by faces, not by corners', () => {
    const map = flat('11000', '10100', '00111', '22201');
    expect(fill(map, [3, 2, 0], 2, 3)).toBe(5);
    expect(rows(map)).toEqual(['11000', '10300', '00333', '22203']);
  });
  it('does not go around the edge of a row', () => {
    const map = flat('001', '100');
    expect(fill(map, [2, 0, 0], 2, 2)).toBe(1);
    expect(rows(map)).toEqual(['002', '100']);
  });
  it('stays in its slice, or goes through all', () => {
    const [one, all] = [empty([3, 3, 4]), empty([3, 3, 4])];
    expect([fill(one, [1, 1, 2], 2, 1), fill(all, [1, 1, 2], undefined, 1)]).toEqual([9, 36]);
    expect(fill(empty([3, 3, 4]), [1, 1, 2], 0, 1)).toBe(12);
  });
  it('stays within a range of intensities, and does nothing from outside of it', () => {
    const map = empty([6, 1, 1]);
    const allowed = between([5, 5, 1, 5, 5, 5], 6, 4); // typed in any order
    expect([fill(map, [2, 0, 0], 2, 1, allowed), fill(map, [4, 0, 0], 2, 1, allowed)]).toEqual([0, 3]);
    expect(rows(map)).toEqual(['000111']);
  });
});

describe('an interpolation between slices', () => {
  const disc = (map: LabelMap, [x, y, z]: Voxel, diameter: number, normal: Normal = 2) => dot(map, [x, y, z], normal, diameter, 1);
  const area = (map: LabelMap, z: number) => map.labels.subarray(z * 41 * 41, (z + 1) * 41 * 41).reduce((sum, value) => sum + value, 0);
  it('measures distances as a search of all pixels does', () => {
    const on = Uint8Array.from({ length: 7 * 6 }, (_, i) => Number([9, 10, 17, 30].includes(i)));
    const [across, up] = [0.5, 2];
    const nearest = (at: number, wanted: number) => Math.min(...[...on].flatMap((is, i) =>
      (is === wanted ? [Math.hypot(across * ((i % 7) - (at % 7)), up * (Math.floor(i / 7) - Math.floor(at / 7)))] : [])));
    const found = signedDistance({ on, width: 7, height: 6 }, across, up);
    found.forEach((distance, at) => { expect(distance).toBeCloseTo(on[at] ? 0.25 - nearest(at, 0) : nearest(at, 1) - 0.25, 9); });
  });
  it('makes a cone of two discs', () => {
    const map = empty([41, 41, 5]);
    disc(map, [20, 20, 0], 9);
    disc(map, [20, 20, 4], 25);
    const ends = [area(map, 0), area(map, 4)];
    interpolate(map, 2, [0, 4], 1);
    for (const z of [1, 2, 3]) expect(Math.abs(area(map, z) / (Math.PI * (4.5 + 2 * z) ** 2) - 1)).toBeLessThan(0.1);
    expect([area(map, 0), area(map, 4)]).toEqual(ends);
  });
  it('leads from one outline to another that it does not touch', () => {
    const map = empty([41, 41, 5]);
    disc(map, [8, 20, 0], 7);
    disc(map, [32, 20, 4], 7);
    interpolate(map, 2, [0, 4], 1);
    expect([map.labels[20 + 41 * (20 + 41 * 2)], area(map, 2)]).toEqual([1, area(map, 0)]);
  });
  it('replaces the label where it was wrong, and spares other labels beside it', () => {
    const map = empty([41, 41, 3]);
    disc(map, [20, 20, 0], 9);
    disc(map, [20, 20, 2], 9);
    disc(map, [5, 5, 1], 5); // is in no outline
    map.labels[30 + 41 * (30 + 41)] = 2;
    interpolate(map, 2, [0, 2], 1);
    expect([area(map, 1) - 2, map.labels[5 + 41 * (5 + 41)], map.labels[30 + 41 * (30 + 41)]]).toEqual([area(map, 0), 0, 2]);
  });
  it('leaves what is no longer inside as not labelled, where that can be', () => {
    const map = empty([41, 41, 3]);
    disc(map, [20, 20, 0], 9);
    disc(map, [20, 20, 2], 9);
    disc(map, [5, 5, 1], 5);
    expect(interpolate(map, 2, [0, 2], 1, [1, 1, 1], () => true, 3)).toBe(21 + area(map, 0));
    expect(map.labels.filter((label) => label === 3).length).toBe(21);
  });
  it('changes only what is allowed', () => {
    const map = empty([41, 41, 3]);
    disc(map, [20, 20, 0], 9);
    disc(map, [20, 20, 2], 9);
    expect(interpolate(map, 2, [0, 2], 1, [1, 1, 1], (index) => index % 41 > 20)).toBe((area(map, 0) - 9) / 2);
  });
  it('works across every axis, and does nothing where an outline is missing', () => {
    const map = empty([5, 41, 41]);
    disc(map, [0, 20, 20], 9, 0);
    expect(interpolate(map, 0, [0, 4], 1)).toBe(0);
    disc(map, [4, 20, 20], 9, 0);
    expect(interpolate(map, 0, [0, 4], 1)).toBe(3 * count(map) / 5);
  });
  it('goes between slices that were painted on', () => {
    const map = empty([4, 4, 8]);
    const before = map.labels.slice();
    for (const z of [1, 5]) dot(map, [1, 1, z], 2, 3, 2);
    expect([changedSlices(map, before, 2, 2), changedSlices(map, before, 2, 1)]).toEqual([[1, 5], []]);
    expect([around([1, 5], 3), around([1, 5], 5), around([1, 5, 6], 6), around([1, 2], 1), around([1, 5], 7)])
      .toEqual([[1, 5], [1, 5], undefined, undefined, undefined]);
  });
});

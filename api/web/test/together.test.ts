import { afterEach, describe, expect, it, vi } from 'vitest';
import { commonFolder, filesOf } from '../src/dropped.js';
import { imagesOf, sentOf } from '../src/together.js';

const { signal } = new AbortController();
const named = (...names: string[]): File[] => names.map((name) => new File([name], name));
/** The service says that these are the images of the files that it is asked about, and that these are none. */
function answering(images: [string, number[]][], none: number[] = []) {
  const asked = vi.fn(async (_path: string, _request: RequestInit) => Response.json({
    images: images.map(([label, files]) => ({ label, files: files.map(String) })),
    left_out: none.map((file) => ({ file: String(file), reason: 'DICOM without a picture' })),
  }));
  vi.stubGlobal('fetch', asked);
  return asked;
}

afterEach(() => vi.unstubAllGlobals());

describe('files that are chosen together', () => {
  it('are one image where the service says that they are a series', async () => {
    answering([['series4', [0, 1]], ['series5', [2, 4]], ['x', [3]]], [5]);
    const files = named('IM1', 'IM2', 'a.dcm', 'x.dcm', 'b.dcm', 'DICOMDIR', 'c.png');
    const { images, not } = await imagesOf(files, signal);
    expect(images.map(({ name, files: within }) => [name, within.map(([, file]) => file.name)])).toEqual([
      ['IM1-series4.dcm', ['IM1', 'IM2']], ['a-series5.dcm', ['a.dcm', 'b.dcm']], ['x.dcm', ['x.dcm']], ['c.png', ['c.png']],
    ]);
    expect(not).toEqual(['DICOMDIR: DICOM without a picture']);
    const sent = await Promise.all(images.map(sentOf));
    expect(sent.map((file) => file?.name)).toEqual(['IM1-series4.dcm', 'a-series5.dcm', 'x.dcm', 'c.png']);
    expect([await sent[0]?.slice(0, 2).text(), sent[3]]).toEqual(['PK', files[6]]);
  });
  it('have different names where the series have no number', async () => {
    answering([['series', [0, 1]], ['series', [2, 3]]]);
    const { images } = await imagesOf(named('1', '2', '3', '4'), signal);
    expect(images.map(({ name }) => name)).toEqual(['1-series1.dcm', '3-series2.dcm']);
  });
  it('are not asked about where they cannot be a series', async () => {
    const asked = answering([]);
    const { images } = await imagesOf(named('a.png', 'b.nii.gz', 'only.dcm'), signal);
    expect([images.length, asked.mock.calls.length]).toEqual([3, 0]);
  });
  it('hold nobody up where one cannot be read', async () => {
    class Gone extends File {
      override slice = () => ({ text: () => Promise.reject(new DOMException('gone', 'NotFoundError')) }) as never;
      override arrayBuffer = () => Promise.reject(new DOMException('gone', 'NotFoundError'));
    }
    answering([['series', [0, 1]]]);
    const { images } = await imagesOf([...named('1.dcm', '2.dcm'), new Gone(['x'], '3.dcm')], signal);
    expect(images.map(({ name }) => name)).toEqual(['1.dcm', '3.dcm']);
  });
  it('are one image where they are a header and its voxels', async () => {
    const files = named('a.img.gz', 'a.hdr.gz', 'b.raw', 'c.mhd', 'd.zraw', 'd.mhd', 'e.nhdr');
    const { images } = await imagesOf(files, signal);
    expect(images.map(({ name, files: within }) => [name, ...within.map(([key]) => key)])).toEqual([
      ['a.hdr.gz', 'a.hdr.gz', 'a.img.gz'], ['b.raw', 'b.raw'], ['c.mhd', 'c.mhd'], ['d.mhd', 'd.mhd', 'd.zraw'], ['e.nhdr', 'e.nhdr'],
    ]);
  });
});

/** A folder of files and other folders, as a browser tells of what was dropped. */
function folder(path: string, ...within: object[]) {
  const tells = [within, []];
  return { isDirectory: true, name: path.replace(/.*\//, ''), createReader: () => ({ readEntries: (told: (some: object[]) => void) => told(tells.shift() ?? []) }) };
}
const file = (path: string) => ({ isFile: true, name: path.replace(/.*\//, ''), fullPath: path, file: (told: (one: File) => void) => told(new File(['x'], path.replace(/.*\//, ''))) });

describe('folders that are dropped', () => {
  const dropped = (...entries: object[]) => filesOf({ files: [], items: entries.map((entry) => ({ webkitGetAsEntry: () => entry })) } as unknown as DataTransfer);

  it('give their name to the series in them, or that of the one around them', async () => {
    const [one, two] = ['a', 'b'].map((name) => () => folder(`/p07/${name}`, file(`/p07/${name}/1`), file(`/p07/${name}/2`))) as [() => object, () => object];
    expect(commonFolder(await dropped(folder('/p07', one())))).toBe('a');
    expect(commonFolder(await dropped(folder('/p07', one(), two())))).toBe('p07');
    expect(commonFolder(await dropped(folder('/p07', one()), folder('/p08', file('/p08/1'))))).toBe('');
    expect(commonFolder(named('1', '2'))).toBe('');
  });
});

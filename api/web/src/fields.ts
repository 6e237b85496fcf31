/** Form fields that say what they take. */

/** Say what a field takes where the browser would say that it does not fit; details that are closed open, as it shows nothing of a field in them. */
export const takes = (what: string) => (field: HTMLInputElement): (() => void) => {
  const check = () => {
    field.setCustomValidity('');
    if (!field.validity.valid) field.setCustomValidity(what);
  };
  const open = () => field.closest('details')?.setAttribute('open', '');
  check();
  field.addEventListener('input', check);
  field.addEventListener('invalid', open);
  return () => {
    field.removeEventListener('input', check);
    field.removeEventListener('invalid', open);
  };
};

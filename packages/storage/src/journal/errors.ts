import { OrbweaverError } from '@orbweaver/iproto'

/** Why a directory of data cannot be used. */
export type JournalFault = 'locked' | 'foreign' | 'damaged' | 'version' | 'disk'

/** The data directory cannot be used: nothing was changed in it. `fault` says which kind of trouble, the message what to do. */
export class JournalError extends OrbweaverError {
  readonly code = 'ORB_JOURNAL' as const
  readonly fault: JournalFault

  constructor(fault: JournalFault, message: string, options: ErrorOptions = {}) {
    super(message, { ...options, executed: 'no' })
    this.fault = fault
  }
}

const PLAIN_WORDS: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk is full',
  EDQUOT: 'the quota of the disk is used up',
  EROFS: 'the disk is read-only',
  EACCES: 'this process may not write there',
  EPERM: 'this process may not write there',
  ENOTDIR: 'a part of the path is not a directory',
  EMFILE: 'this process has too many files open',
  EIO: 'the disk reports an error',
}

/** What the system said, in plain words first. */
export function diskTrouble(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException
  const words = code === undefined ? undefined : PLAIN_WORDS[code]
  const said = message ?? String(error)
  return words === undefined ? said : `${words} (${said})`
}

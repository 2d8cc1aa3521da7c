/* Grants, with the refusals of Tarantool 2.6.0 and 3.2.1 (both give the same texts; 3.2.1 adds the field `user`). */
import { BoxError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import type { UserRights } from '../src/index.js'
import { startAlone } from './memory.js'
import type { Alone } from './memory.js'

const SPACE = {
  format: [
    { name: 'id', type: 'unsigned' },
    { name: 'name', type: 'string', isNullable: true },
  ],
} as const

function start(rights: UserRights): Alone {
  const alone = startAlone()
  alone.storage.createSpace('people', SPACE)
  alone.storage.createSpace('secrets', SPACE)
  alone.storage.define('api.hello', () => 'hello')
  alone.storage.define('hidden', () => 'hidden')
  alone.storage.setUser('u', { password: 'p', rights })
  return alone
}

/** What a request was refused with, or 'done'. */
async function refusal({ wait }: Alone, work: Promise<unknown>): Promise<string> {
  try {
    await wait(work)
    return 'done'
  } catch (error) {
    if (!(error instanceof BoxError)) throw error
    return `${error.boxCode}: ${error.message}`
  }
}

const denied = (access: string, object: string): string => `42: ${access} access to ${object} is denied for user 'u'`

const CASES: readonly [rights: UserRights, Readonly<Record<string, string>>][] = [
  [
    {},
    {
      ping: 'done',
      watch: 'done',
      begin: 'done',
      selectPeople: denied('Read', "space 'people'"),
      insertPeople: denied('Write', "space 'people'"),
      updatePeople: denied('Write', "space 'people'"),
      deletePeople: denied('Write', "space 'people'"),
      upsertPeople: denied('Write', "space 'people'"),
      callHello: denied('Execute', "function 'api.hello'"),
      callNothing: denied('Execute', "function 'nothing'"),
      evaluate: denied('Execute', "universe ''"),
      selectVspace: 'done',
      selectSpace: denied('Read', "space '_space'"),
      insertVspace: denied('Write', "space '_vspace'"),
      makeSpace: denied('Write', "space '_space'"),
    },
  ],
  [
    { read: ['people'] },
    {
      selectPeople: 'done',
      selectSecrets: denied('Read', "space 'secrets'"),
      insertPeople: denied('Write', "space 'people'"),
    },
  ],
  // Writing is not reading, in Tarantool, too.
  [
    { write: ['people'] },
    { insertPeople: 'done', deletePeople: 'done', selectPeople: denied('Read', "space 'people'") },
  ],
  [
    { execute: ['api.*'] },
    {
      callHello: 'done',
      callHidden: denied('Execute', "function 'hidden'"),
      evaluate: denied('Execute', "universe ''"),
    },
  ],
  [
    { universe: ['execute'] },
    {
      callHidden: 'done',
      callNothing: "33: Procedure 'nothing' is not defined",
      selectPeople: denied('Read', "space 'people'"),
    },
  ],
  [
    { universe: ['read'] },
    { selectSecrets: 'done', selectSpace: 'done', insertPeople: denied('Write', "space 'people'") },
  ],
  [
    { universe: ['read', 'write'] },
    {
      insertPeople: 'done',
      insertVspace: "113: View '_vspace' is read-only",
      makeSpace: denied('Create', "space 'made'"),
      dropSpace: denied('Drop', "space 'people'"),
      dropIndex: denied('Drop', "space 'people'"),
      alterSpace: denied('Alter', "space 'people'"),
      deleteNothing: 'done',
    },
  ],
  [{ universe: ['create'] }, { makeSpace: denied('Write', "space '_space'") }],
  [
    { universe: ['create'], write: ['_space', '_index'] },
    {
      makeSpace: 'done',
      makeIndex: 'done',
      dropIndex: denied('Drop', "space 'people'"),
      insertPeople: denied('Write', "space 'people'"),
    },
  ],
  [
    { universe: ['drop', 'alter', 'write'] },
    {
      dropSpace: "11: Can't drop space 'people': the space has indexes",
      alterSpace: 'done',
      makeIndex: denied('Create', "space 'people'"),
    },
  ],
]

const PEOPLE = 512

describe.each(CASES)('a user with %o', (rights, wanted) => {
  const requests: Readonly<Record<string, (alone: Alone) => Promise<unknown>>> = {
    ping: (alone) => alone.connect('u').ping(),
    watch: (alone) =>
      new Promise((resolve) => {
        alone.connect('u').watch('box.status', resolve)
      }),
    begin: (alone) => alone.connect('u').stream().begin(),
    selectPeople: (alone) => alone.connect('u').select('people', []),
    selectSecrets: (alone) => alone.connect('u').select('secrets', []),
    insertPeople: (alone) => alone.connect('u').insert('people', [9]),
    updatePeople: (alone) => alone.connect('u').update('people', [1], [['=', 'name', 'x']]),
    upsertPeople: (alone) => alone.connect('u').upsert('people', [1], [['=', 'name', 'x']]),
    deletePeople: (alone) => alone.connect('u').delete('people', [1]),
    callHello: (alone) => alone.connect('u').call('api.hello'),
    callHidden: (alone) => alone.connect('u').call('hidden'),
    callNothing: (alone) => alone.connect('u').call('nothing'),
    evaluate: (alone) => alone.connect('u').eval('return 1'),
    selectVspace: (alone) => alone.connect('u').select('_vspace', [PEOPLE]),
    selectSpace: (alone) => alone.connect('u').select('_space', [PEOPLE]),
    insertVspace: (alone) => alone.connect('u').insert('_vspace', [1]),
    makeSpace: (alone) => alone.connect('u').insert('_space', [600, 1, 'made', 'memtx', 0, {}, []]),
    makeIndex: (alone) =>
      alone.connect('u').insert('_index', [PEOPLE, 1, 'second', 'tree', { unique: false }, [[1, 'string']]]),
    alterSpace: (alone) => alone.connect('u').update('_space', [PEOPLE], [['=', 'name', 'folk']]),
    dropIndex: (alone) => alone.connect('u').delete('_index', [PEOPLE, 0]),
    dropSpace: (alone) => alone.connect('u').delete('_space', [PEOPLE]),
    deleteNothing: (alone) => alone.connect('u').delete('_space', [9_999]),
  }

  it.each(Object.entries(wanted))('%s: %s', async (request, answer) => {
    const alone = start(rights)
    const before = alone.storage.space('_space').select()
    expect(await refusal(alone, requests[request]!(alone))).toBe(answer)
    if (answer !== 'done') expect(alone.storage.space('_space').select()).toEqual(before)
    await alone.wait(alone.storage.close({ graceMs: 0 }))
  })
})

describe('a refusal', () => {
  it('has the type and the fields of Tarantool', async () => {
    const alone = start({})
    const error: unknown = await alone.wait(
      alone
        .connect('u')
        .call('api.hello')
        .catch((cause: unknown) => cause),
    )
    expect(error).toMatchObject({ boxType: 'AccessDeniedError', boxCode: 42, executed: 'yes' })
    expect(Object.fromEntries((error as BoxError).fields)).toEqual({
      access_type: 'Execute',
      object_type: 'function',
      object_name: 'api.hello',
      user: 'u',
    })
    await alone.wait(alone.storage.close({ graceMs: 0 }))
  })
})

describe('rights at run time', () => {
  it('are those of the moment, also for sessions that are open, and nothing when the user is gone', async () => {
    const alone = start({ read: ['people'] })
    const client = alone.connect('u')
    expect(await refusal(alone, client.select('people', []))).toBe('done')
    alone.storage.setUser('u', { password: 'p', rights: { execute: ['api.hello'] } })
    expect(await refusal(alone, client.select('people', []))).toBe(denied('Read', "space 'people'"))
    expect(await refusal(alone, client.call('api.hello'))).toBe('done')
    expect(alone.storage.removeUser('u')).toBe(true)
    expect(alone.storage.removeUser('u')).toBe(false)
    expect(await refusal(alone, client.call('api.hello'))).toBe(denied('Execute', "function 'api.hello'"))
    expect(await refusal(alone, client.ping())).toBe('done')
    await alone.wait(alone.storage.close({ graceMs: 0 }))
  })

  it('of guest can be given and taken, and guest cannot be removed', async () => {
    const alone = start({})
    alone.storage.setUser('guest', { rights: { execute: ['*'] } })
    expect(await refusal(alone, alone.connect('guest').call('hidden'))).toBe('done')
    expect(alone.storage.removeUser('guest')).toBe(true)
    expect(await refusal(alone, alone.connect('guest').call('hidden'))).toMatch(/^42: .* for user 'guest'$/)
    await alone.wait(alone.storage.close({ graceMs: 0 }))
  })

  it('let a super user make a space, use it and remove it over the wire', async () => {
    const alone = start({})
    const client = alone.connect()
    await alone.wait(client.insert('_space', [600, 1, 'made', 'memtx', 0, {}, [{ name: 'id', type: 'unsigned' }]]))
    await alone.wait(client.insert('_index', [600, 0, 'pk', 'tree', { unique: true }, [[0, 'unsigned']]]))
    await alone.wait(client.insert('made', [1]))
    expect(alone.storage.space('made').select()).toEqual([[1]])
    await alone.wait(client.delete('made', [1]))
    await alone.wait(client.delete('_index', [600, 0]))
    await alone.wait(client.delete('_space', [600]))
    expect(() => alone.storage.space('made')).toThrow(/does not exist/)
    await alone.wait(alone.storage.close({ graceMs: 0 }))
  })
})

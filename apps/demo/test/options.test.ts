import { describe, expect, it } from 'vitest'
import { HELP, readOptions, UsageError } from '../src/options.js'

describe('the options of the demo', () => {
  it('have sensible defaults', () => {
    expect(readOptions([])).toEqual({
      mode: 'show',
      isJson: false,
      engine: 'embedded',
      topologyFile: undefined,
      replicasets: 3,
      instances: 3,
      bucketCount: 3_000,
      port: undefined,
    })
  })

  it('are read as given', () => {
    expect(
      readOptions([
        '--idle',
        '--topology',
        'out.json',
        '--replicasets',
        '2',
        '--instances=1',
        '--buckets',
        '30',
        '--port',
        '4000',
        '--json',
        '--engine=tarantool',
      ]),
    ).toEqual({
      mode: 'idle',
      isJson: true,
      engine: 'tarantool',
      topologyFile: 'out.json',
      replicasets: 2,
      instances: 1,
      bucketCount: 30,
      port: 4_000,
    })
    expect(readOptions(['--once', '--help'])).toBe('help')
  })

  it.each<[string, string[]]>([
    ['--once and --idle exclude each other', ['--once', '--idle']],
    ["Unknown option '--onze'", ['--onze']],
    ["Unexpected argument 'now'", ['now']],
    ["--replicasets is '0'", ['--replicasets', '0']],
    ["--engine is 'lua'", ['--engine', 'lua']],
    ["--port is '80000'", ['--port', '80000']],
    ["--buckets is 'many'", ['--buckets', 'many']],
    ["--buckets is '1e3'", ['--buckets', '1e3']],
    ['--topology', ['--topology']],
    ['--topology needs', ['--topology', '']],
  ])('that cannot be right are refused in one sentence: %s', (sentence, args) => {
    expect(() => readOptions(args)).toThrow(UsageError)
    expect(() => readOptions(args)).toThrow(sentence)
    expect(() => readOptions(args)).not.toThrow(/\n/)
  })

  it('are all in the help', () => {
    for (const option of ['once', 'idle', 'json', 'topology', 'replicasets', 'instances', 'buckets', 'port', 'help'])
      expect(HELP).toContain(`--${option}`)
  })
})

/** The process of one subject: sets up, runs the rounds it is told to, ends with its parent. */
import { CASES } from './cases.js'
import type { SubjectName } from './cases/bench-case.js'
import type { FromSubject, ToSubject } from './subject-messages.js'
import { makeSubject } from './subjects/registry.js'
import type { Subject } from './subjects/subject.js'

export function serveSubject(): void {
  let subject: Subject | undefined
  const take = async (message: ToSubject): Promise<FromSubject> => {
    switch (message.say) {
      case 'setUp': {
        const benchCase = CASES.find(({ id }) => id === message.caseId)
        if (benchCase === undefined) throw new Error(`There is no case ${message.caseId}`)
        subject = await makeSubject(message.subject as SubjectName, benchCase, message.stage)
        return { say: 'ready' }
      }
      case 'round':
        if (subject === undefined) throw new Error('A round before setUp')
        return { say: 'done', round: await subject.round(message.seconds, message.patienceMs) }
      case 'end':
        return process.exit(0) // writes the profile, where one is taken
    }
  }
  const tell = (answer: FromSubject): void => {
    process.send?.(answer)
  }
  process.on('message', (message) => {
    take(message as ToSubject).then(tell, (error: unknown) => {
      tell({ say: 'failed', message: error instanceof Error ? error.message : String(error) })
    })
  })
  process.on('disconnect', () => process.exit(0))
  // Ctrl-C reaches the whole group of a terminal; the parent decides how its subjects end.
  process.on('SIGINT', () => {})
}

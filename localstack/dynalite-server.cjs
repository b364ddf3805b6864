// A DynamoDB-compatible engine on the loopback address: dynalite with three things mended.
//
//   node dynalite-server.cjs [--port N] [--path DIR] [--parent]
//
// --port    where to listen; 0 (the default) takes a free port
// --path    keep the tables in this directory; without it they live in memory
// --parent  end when standard input ends, that is, when the process that started this one is gone
//
// The first line on standard output says where it listens: "dynalite on http://127.0.0.1:PORT".
'use strict'

const { parseArgs } = require('node:util')

const major = Number(process.versions.node.split('.')[0])
if (major < 20) fail(`Node.js 20 or later is needed, this is ${process.versions.node}`)

const { values: options } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    path: { type: 'string' },
    parent: { type: 'boolean', default: false },
  },
})

const dynalite = load('dynalite')
const db = load('dynalite/db')

returnOldItems()
const server = dynalite({ path: options.path, createTableMs: 0, deleteTableMs: 0, updateTableMs: 0 })
surviveDisconnects(server)
server.keepAliveTimeout = 120000 // the default of 5 s cuts connections that a client is about to use again
server.on('error', (err) => fail(err.message))
server.listen(Number(options.port), '127.0.0.1', () => {
  console.log(`dynalite on http://127.0.0.1:${server.address().port}`)
})
if (options.parent) process.stdin.on('end', () => process.exit(0)).resume()

// dynalite does not know ReturnValuesOnConditionCheckFailure; put the old item into the error's body.
function returnOldItems () {
  const check = db.checkConditional
  db.checkConditional = (data, item) => {
    const err = check(data, item)
    if (err && item && data.ReturnValuesOnConditionCheckFailure === 'ALL_OLD') err.body.Item = item
    return err
  }
  for (const action of ['updateItem', 'putItem', 'deleteItem']) {
    const validation = load('dynalite/validations/' + action)
    validation.types.ReturnValuesOnConditionCheckFailure = { type: 'String', enum: ['ALL_OLD', 'NONE'] }
  }
}

// dynalite throws, and so ends, when a client goes away in the middle of a request; the request is then simply over.
function surviveDisconnects (server) {
  const [handle] = server.listeners('request')
  server.removeAllListeners('request')
  server.on('request', (req, res) => {
    const on = req.on
    req.on = function (event, listener) { return on.call(this, event, event === 'error' ? () => {} : listener) }
    handle(req, res)
  })
}

function load (module) {
  try {
    return require(module)
  } catch (err) {
    return fail(`cannot load ${module}, run "make setup": ${err.message.split('\n')[0]}`)
  }
}

function fail (message) {
  console.error('dynalite-server: ' + message)
  process.exit(1)
}

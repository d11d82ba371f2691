"""The database engine: connection, transactions, migrations, copies."""

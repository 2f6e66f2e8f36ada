-- Records a file; its content is NULL where it lies in the folder.
INSERT INTO stored_file (id, tenant, purpose, name, size, expires_at, content)
VALUES (CAST(:id AS uuid), :tenant, 'batch', :name, :size, now() + make_interval(secs => :seconds), :content)
RETURNING id, purpose, name, size, created_at, expires_at

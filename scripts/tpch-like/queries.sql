-- One query of six, by chance, with a range by chance.
\set query random(1, 6)
\set day random(0, 2300)
\set part random_zipfian(1, 20000, 1.1)
\set customer random_zipfian(1, 15000, 1.1)
\if :query = 1
select l_returnflag, sum(l_extendedprice * (1 - l_discount)), avg(l_quantity), count(*) from lineitem
  where l_shipdate between date '1992-01-01' + :day and date '1992-01-01' + :day + 30 group by l_returnflag;
\elif :query = 2
select sum(l_extendedprice * l_discount) from lineitem
  where l_shipdate between date '1992-01-01' + :day and date '1992-01-01' + :day + 7 and l_quantity < 24;
\elif :query = 3
select o_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue from customer join orders on c_custkey = o_custkey
  join lineitem on l_orderkey = o_orderkey
  where c_custkey between :customer and :customer + 20 group by o_orderkey order by revenue desc limit 10;
\elif :query = 4
select o_orderpriority, count(*) from orders where o_orderdate between date '1992-01-01' + :day and date '1992-01-01' + :day + 14
  and exists (select from lineitem where l_orderkey = o_orderkey and l_quantity > 40) group by o_orderpriority;
\elif :query = 5
select sum(l_extendedprice) / 7 from lineitem join part on p_partkey = l_partkey
  where p_partkey between :part and :part + 30 and p_container < 20 and l_quantity < 10;
\else
select s_nationkey, sum(l_extendedprice) from lineitem join supplier on s_suppkey = l_suppkey
  where l_partkey between :part and :part + 60 group by s_nationkey;
\endif
